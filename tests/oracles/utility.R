# R 4.2.2 with survival 3.5-3, metafor 3.8-1 and mice 3.15.0: Rscript tests/oracles/utility.R > tests/oracles/utility.json
# lung is survival's, which lifelines has too. Numbers have all digits; those of mice's draws are means of 400 tables.
suppressPackageStartupMessages({library(survival); library(metafor); library(mice); library(jsonlite)})

truth <- c(0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0)
p <- c(.1, .4, .35, .8, .2, .6, .3, .15, .25, .05, .9, .5)
thresholds <- c(.2, .3, .4)
worth <- function(p) sapply(thresholds, function(t) (p >= t) * ifelse(truth == 1, 1, -t / (1 - t)))
apart <- rowMeans(worth(p) - worth(rep(1, 12)))
benefit <- list(truth = truth, p = p, thresholds = thresholds, of_model = colMeans(worth(p)),
                less_all = mean(apart), error = sd(apart) / sqrt(12))

line <- summary(glm(truth ~ qlogis(p), family = binomial, epsilon = 1e-14))$coefficients
slope <- list(slope = line[2, 1], error = line[2, 2])

x <- c(.2, .9, .4, 1.4); v <- c(.04, .05, .03, .06)
fixed <- rma.uni(x, v, method = "FE")
counts <- rbind(c(18, 6), c(9, 11), c(14, 2))
values <- c(3, 5, 5, 8, 1, 9, 2, 2, 7); group <- c(1, 1, 1, 2, 2, 2, 2, 1, 2)
kw <- kruskal.test(values, group)
heterogeneity <- list(x = x, v = v, q = fixed$QE, p = fixed$QEp, counts = counts,
                      pearson = unname(chisq.test(counts, correct = FALSE)$statistic),
                      pearson_p = chisq.test(counts, correct = FALSE)$p.value, values = values, group = group,
                      kruskal = unname(kw$statistic), kruskal_p = kw$p.value)

q <- c(.51, .43, .62, .38, .55); u <- c(.021, .019, .024, .02, .022)
pooled <- pool.scalar(q, u, n = Inf)
d2 <- function(chi2, k) {  # Li et al. 1991
  m <- length(chi2); r <- (1 + 1 / m) * var(sqrt(chi2)); d <- (mean(chi2) / k - (m + 1) / (m - 1) * r) / (1 + r)
  c(k * d, pf(d, k, k^(-3 / m) * (m - 1) * (1 + 1 / r)^2, lower.tail = FALSE))
}
chi2 <- c(9.1, 12.4, 7.7, 10.2, 11.9)
rubin <- list(q = q, u = u, value = pooled$qbar, variance = pooled$t, df = pooled$df,
              reach = qt(.975, pooled$df) * sqrt(pooled$t), p = 2 * pt(-pooled$qbar / sqrt(pooled$t), pooled$df),
              chi2 = chi2, d2_of_1 = d2(chi2, 1), d2_of_3 = d2(chi2, 3))

data <- lung[, c("time", "status", "age", "sex", "ph.ecog", "meal.cal", "wt.loss")]
data <- data[!is.na(data$ph.ecog), ]
data$status <- data$status - 1
by_day <- survfit(Surv(time, status) ~ 1, data)
hazard <- by_day$cumhaz[match(data$time, by_day$time)]
set.seed(1)
filled <- mice(cbind(data[, -1], hazard), m = 400, maxit = 10, method = "pmm", printFlag = FALSE)
fits <- with(filled, coxph(Surv(data$time, status) ~ age + sex + ph.ecog + meal.cal + wt.loss))
table <- summary(pool(fits))
lung_means <- sapply(c("meal.cal", "wt.loss"), function(name) {
  each <- filled$imp[[name]]; c(mean(colMeans(each)), mean(apply(each, 2, sd)))
})
cox <- list(hazard = head(hazard, 10), names = as.character(table$term), value = table$estimate, error = table$std.error,
            mean = lung_means[1, ], deviation = lung_means[2, ])

cat(toJSON(list(benefit = benefit, slope = slope, heterogeneity = heterogeneity, rubin = rubin, cox = cox), digits = NA,
           auto_unbox = TRUE, pretty = 1), "\n")
