# Makes sites.json: Rscript tests/oracles/sites.R > tests/oracles/sites.json
# Random effects by metafor; the variance of an AUC of clustered patients by Obuchowski's formula (Biometrics 1997;53:567),
# written out pair by pair; a prediction interval by random draws, which knows three digits; calibration by glm and survival.
library(metafor)
library(survival)
library(jsonlite)
set.seed(1)

yi <- c(0.95, 1.10, 0.88, 1.21, 1.02, 0.79, 1.15)
vi <- c(0.010, 0.006, 0.015, 0.004, 0.012, 0.020, 0.008)
fit <- rma(yi, vi, method = "REML", test = "knha", control = list(threshold = 1e-12, maxiter = 10000))
adhoc <- rma(yi, vi, method = "REML", test = "adhoc", control = list(threshold = 1e-12, maxiter = 10000))
predicted <- predict(fit)
alike <- 1 + (yi - 1) / 4 # whose spread is below chance, so that "adhoc" and "knha" differ
alike_knha <- rma(alike, vi, method = "REML", test = "knha")
alike_adhoc <- rma(alike, vi, method = "REML", test = "adhoc")

# Nagashima, Noma & Furukawa 2019, with the error of the mean limited as in "adhoc"
k <- length(yi)
q_of <- function(tau2) {
  w <- 1 / (vi + tau2)
  sum(w * (yi - sum(w * yi) / sum(w))^2)
}
tau2_of <- function(u) {
  wanted <- qchisq(1 - u, k - 1)
  if (q_of(0) <= wanted) return(0)
  uniroot(function(x) q_of(x) - wanted, c(0, 1e4), tol = 1e-12)$root
}
draws <- 400000
tau2 <- sapply((seq_len(4000) - 0.5) / 4000, tau2_of)
tau2 <- rep(tau2, draws / 4000)
w_of <- sapply(vi, function(v) 1 / (v + tau2))
mean_of <- as.vector(w_of %*% yi) / rowSums(w_of)
q <- rowSums(w_of * (matrix(yi, draws, k, byrow = TRUE) - mean_of)^2)
error <- sqrt(pmax(1, q / (k - 1)) / rowSums(w_of))
drawn <- mean_of + error * rt(draws, k - 1) + sqrt(tau2) * rnorm(draws)

cluster <- rep(1:6, c(7, 5, 9, 6, 8, 5))
n <- length(cluster)
truth <- rep(c(1, 0, 0), length.out = n)
score <- round(0.8 * truth + 0.3 * (cluster %% 3) + rnorm(n), 1)
x <- score[truth == 1]
y <- score[truth == 0]
wins <- outer(x, y, function(a, b) (a > b) + 0.5 * (a == b))
auc <- mean(wins)
v10 <- rowMeans(wins)
v01 <- colMeans(wins)
m <- length(x)
nn <- length(y)
a <- sapply(1:6, function(i) sum(v10[cluster[truth == 1] == i] - auc))
b <- sapply(1:6, function(i) sum(v01[cluster[truth == 0] == i] - auc))
g <- 6
obuchowski <- g / (g - 1) * (sum(a^2) / m^2 + sum(b^2) / nn^2 + 2 * sum(a * b) / (m * nn))
without <- sapply(1:6, function(i) {
  keep <- cluster != i
  mean(outer(score[keep & truth == 1], score[keep & truth == 0], function(a, b) (a > b) + 0.5 * (a == b)))
})
jackknife <- (g - 1) / g * sum((without - auc)^2)

probability <- plogis(0.7 * score - 0.6)
line <- summary(glm(truth ~ qlogis(probability), family = binomial, control = list(epsilon = 1e-14, maxit = 100)))$coefficients
days <- c(50, 120, 120, 200, 260, 300, 365, 365, 400, 500, 700, 30)
died <- c(1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 1)
km <- summary(survfit(Surv(days, died) ~ 1), times = 365)

cat(toJSON(list(
  r = R.version.string, metafor = as.character(packageVersion("metafor")), survival = as.character(packageVersion("survival")),
  values = yi, variances = vi,
  reml = list(tau2 = fit$tau2, mean = as.numeric(fit$beta), error = fit$se, low = fit$ci.lb, high = fit$ci.ub),
  adhoc = list(error = adhoc$se, low = adhoc$ci.lb, high = adhoc$ci.ub),
  alike = list(values = alike, knha = alike_knha$se, error = alike_adhoc$se, low = alike_adhoc$ci.lb, high = alike_adhoc$ci.ub),
  metafor_prediction = c(predicted$pi.lb, predicted$pi.ub),
  drawn_prediction = as.numeric(quantile(drawn, c(0.025, 0.975))), drawn_above_09 = mean(drawn > 0.9),
  cluster = cluster, truth = truth, score = score, auc = auc, without = without, obuchowski = obuchowski, jackknife = jackknife,
  probability = probability, slope = line[2, 1:2],
  days = days, died = died, alive_365 = km$surv, alive_365_error = km$std.err
), digits = 12, auto_unbox = TRUE, pretty = TRUE))
cat("\n")
