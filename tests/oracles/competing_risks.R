# Writes competing_risks.json beside this script: Rscript tests/oracles/competing_risks.R
# R 4.2.2, survival 3.5-3, cmprsk 2.2-11, riskRegression 2022.11.28; jsonlite prints every digit of a double.
# Events are 0 censored, 1 the event, 2 the competing one. Two tables, which the tests make in the same way:
# "tied", 240 patients by modular arithmetic, whose days are whole months; "lung", survival::lung, in which deaths of patients of
# an odd institution are called competing.
suppressMessages({library(survival); library(cmprsk); library(riskRegression); library(jsonlite)})

i <- 0:239
tied <- data.frame(time = 30 * (1 + (i * i * 7 + i * 13) %% 29), event = c(0, 1, 2, 1)[1 + (i * 5 + i %/% 7) %% 4],
                   group = c("high", "low", "middle")[1 + (i %/% 3) %% 3], risk = (i * 37) %% 101 / 101)
tied$risk <- tied$risk - tied$time / 2000 * (tied$event == 1)
lung <- subset(survival::lung, !is.na(inst) & !is.na(ph.karno))
lung <- data.frame(time = lung$time, event = ifelse(lung$status == 1, 0, ifelse(lung$inst %% 2 == 1, 2, 1)),
                   group = ifelse(lung$sex == 1, "m", "f"), risk = (100 - lung$ph.karno + lung$age / 1000) / 100)

of <- function(table, days) {
  attach(table); on.exit(detach(table))
  found <- cuminc(time, event)
  at <- timepoints(found, days)
  groups <- cuminc(time, event, group)
  chance <- plogis(-2 + 2 * risk)  # a prediction of the event by any of the days
  data <- data.frame(time, event, chance)
  score <- Score(list(model = as.matrix(chance)[, rep(1, length(days)), drop = FALSE]), formula = Hist(time, event) ~ 1,
                 data = data, times = days, cause = 1, metrics = c("auc", "brier"), summary = "ipa", cens.model = "km",
                 null.model = TRUE, se.fit = FALSE, conf.int = FALSE)
  multi <- survfit(Surv(time, factor(event)) ~ 1)
  pseudo <- sapply(days, function(day) pseudo(multi, times = day, type = "pstate")[, 2])
  never <- ifelse(event == 2, max(time) + 1, time)  # Wolbers 2009, where no patient is censored
  whole <- event != 0
  list(days = days, estimate = unname(at$est), variance = unname(at$var),
       gray = list(statistic = unname(groups$Tests[, "stat"]), p = unname(groups$Tests[, "pv"]), df = unname(groups$Tests[, "df"])),
       auc = score$AUC$score[model == "model"]$AUC, brier = score$Brier$score[model == "model"]$Brier,
       null = score$Brier$score[model == "Null model"]$Brier, ipa = score$Brier$score[model == "model"]$IPA,
       pseudo = t(pseudo[1:12, ]),
       uncensored_c = unname(concordance(Surv(never, event == 1)[whole] ~ risk[whole], reverse = TRUE)$concordance),
       uno_c = unname(concordance(Surv(time, event == 1 | event == 2) ~ risk, reverse = TRUE, timewt = "n/G2")$concordance))
}
two <- subset(tied, group != "middle")
found <- list(tied = of(tied, c(180, 360, 720)), lung = of(lung, c(180, 365, 730)),
              two_groups = list(statistic = unname(cuminc(two$time, two$event, two$group)$Tests[, "stat"])))
home <- dirname(sub("--file=", "", grep("--file=", commandArgs(), value = TRUE)))
write(toJSON(found, digits = NA, auto_unbox = TRUE, pretty = TRUE), file.path(home, "competing_risks.json"))
