# Values of tests/metrics/test_instability.py and test_conformal.py, by base R (stats) alone: Rscript tests/oracles/instability.R
p <- cbind(c(0.11, 0.25, 0.42, 0.38), c(0.80, 0.55, 0.61, 0.90), c(0.33, 0.33, 0.47, 0.20)) # trainings by patients
cat("mape", format(apply(p, 2, function(x) mean(dist(x))), digits = 15), "\n")
cat("at_random", format(mean(apply(p, 1, function(x) mean(dist(x)))), digits = 15), "\n")
r <- cor(t(p), method = "spearman")
cat("rank_agreement", format(mean(r[upper.tri(r)]), digits = 15), "\n")
cat("disagreement", format(apply(p >= 0.4, 2, function(x) mean(dist(x))), digits = 15), "\n")
cat("excess", format(phyper(4 - 1, 10, 90, 20, lower.tail = FALSE), digits = 15), "\n") # 4 of 10 missed in 20 of 100 patients
two <- convolve(dhyper(0:12, 5, 35, 12), rev(dhyper(0:8, 6, 54, 8)), type = "open")
cat("excess of two classes", format(sum(two[-(1:5)]), digits = 15), "\n") # 5 or more, of 5 of 40 in 12 and 6 of 60 in 8
cat("range", format(qbeta(c(0.025, 0.975), 120 + 1 - 12, 12), digits = 15), "\n") # floor(0.1 * 121) = 12
k <- c(20, 45, 46, 44, 45); n <- c(50, 50, 60, 50, 50)
for (i in seq_along(k)) {
  z <- 2 * sqrt(n + 0.5) * (asin(sqrt((k + 0.375) / (n + 0.75))) - asin(sqrt(sum(k[-i]) / sum(n[-i]))))
  s <- max(1, sd(z[-i])) * sqrt(1 + 1 / (length(k) - 1))
  cat("outlier", i, format(pt((z[i] - mean(z[-i])) / s, length(k) - 2), digits = 15), "\n")
}
