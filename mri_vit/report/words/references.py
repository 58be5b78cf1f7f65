"""References: text with citation keys goes in, text with numbers and the list of what it cites comes out.

A key is cited as `[@delong]` or `[@delong,sunxu]`. Escaped text (`wording.escape`) holds no bare bracket, so nothing that a run
is named can cite.
"""

from __future__ import annotations

import re

from mri_vit.report.words.wording import escape

CITATION = re.compile(r" ?(?<!\\)\[@([a-z0-9,]+)\]")

REFERENCES = {
    "adamw": "Loshchilov I, Hutter F. Decoupled weight decay regularization. ICLR 2019. arXiv:1711.05101",
    "austin": "Austin PC, Steyerberg EW. The Integrated Calibration Index (ICI) and related metrics for quantifying the "
    "calibration of logistic regression models. Stat Med 2019;38:4051-4065. doi:10.1002/sim.8281",
    "beit": "Bao H et al. BEiT: BERT pre-training of image transformers. ICLR 2022. arXiv:2106.08254",
    "besag": "Besag J, Clifford P. Sequential Monte Carlo p-values. Biometrika 1991;78:301-304. doi:10.1093/biomet/78.2.301",
    "brier": "Brier GW. Verification of forecasts expressed in terms of probability. Mon Weather Rev 1950;78:1-3",
    "bootstrap": "Efron B, Tibshirani RJ. An Introduction to the Bootstrap. Chapman & Hall, 1993",
    "calibration": "Cox DR. Two further applications of a model for binary regression. Biometrika 1958;45:562-565. "
    "doi:10.1093/biomet/45.3-4.562",
    "cardoso": "Cardoso MJ et al. Scale factor point spread function matching: beyond aliasing in image resampling. MICCAI 2015. "
    "doi:10.1007/978-3-319-24571-3_81",
    "chefer": "Chefer H, Gur S, Wolf L. Generic attention-model explainability for interpreting bi-modal and encoder-decoder "
    "transformers. ICCV 2021. arXiv:2103.15679",
    "cox": "Cox DR. Regression models and life-tables. J R Stat Soc B 1972;34:187-220. doi:10.1111/j.2517-6161.1972.tb00899.x",
    "deepbet": "Fisch L et al. deepbet: fast brain extraction of T1-weighted MRI using convolutional neural networks. "
    "Comput Biol Med 2024. arXiv:2308.07003",
    "delong": "DeLong ER, DeLong DM, Clarke-Pearson DL. Comparing the areas under two or more correlated receiver operating "
    "characteristic curves. Biometrics 1988;44:837-845. doi:10.2307/2531595",
    "dino": "Caron M et al. Emerging properties in self-supervised vision transformers. ICCV 2021. arXiv:2104.14294",
    "droppath": "Huang G et al. Deep networks with stochastic depth. ECCV 2016. arXiv:1603.09382",
    "efron": "Efron B. The efficiency of Cox's likelihood function for censored data. J Am Stat Assoc 1977;72:557-565. "
    "doi:10.1080/01621459.1977.10480613",
    "energy": "Wang H et al. Score-CAM: score-weighted visual explanations for convolutional neural networks. CVPR workshop "
    "2020. arXiv:1910.01279",
    "fonov": "Fonov V et al. Unbiased average age-appropriate atlases for pediatric studies. NeuroImage 2011;54:313-327. "
    "doi:10.1016/j.neuroimage.2010.07.033",
    "gensheimer": "Gensheimer MF, Narasimhan B. A scalable discrete-time survival model for neural networks. PeerJ 2019;7:e6257. "
    "doi:10.7717/peerj.6257",
    "gradcam": "Selvaraju RR et al. Grad-CAM: visual explanations from deep networks via gradient-based localization. ICCV 2017. "
    "arXiv:1610.02391",
    "graf": "Graf E et al. Assessment and comparison of prognostic classification schemes for survival data. Stat Med "
    "1999;18:2529-2545. doi:10.1002/(SICI)1097-0258(19990915/30)18:17/18<2529::AID-SIM274>3.0.CO;2-5",
    "grambsch": "Grambsch PM, Therneau TM. Proportional hazards tests and diagnostics based on weighted residuals. Biometrika "
    "1994;81:515-526. doi:10.1093/biomet/81.3.515",
    "harrell": "Harrell FE, Lee KL, Mark DB. Multivariable prognostic models. Stat Med 1996;15:361-387. "
    "doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4",
    "holm": "Holm S. A simple sequentially rejective multiple test procedure. Scand J Stat 1979;6:65-70",
    "ig": "Sundararajan M, Taly A, Yan Q. Axiomatic attribution for deep networks. ICML 2017. arXiv:1703.01365",
    "janes": "Janes H, Pepe MS. Adjusting for covariate effects on classification accuracy using the covariate-adjusted receiver "
    "operating characteristic curve. Biometrika 2009;96:371-382. doi:10.1093/biomet/asp002",
    "kaplan": "Kaplan EL, Meier P. Nonparametric estimation from incomplete observations. J Am Stat Assoc 1958;53:457-481. "
    "doi:10.1080/01621459.1958.10501452",
    "mae": "He K et al. Masked autoencoders are scalable vision learners. CVPR 2022. arXiv:2111.06377",
    "mantel": "Mantel N. Evaluation of survival data and two new rank order statistics. Cancer Chemother Rep 1966;50:163-170",
    "mattes": "Mattes D et al. PET-CT image registration in the chest using free-form deformations. IEEE Trans Med Imaging "
    "2003;22:120-128. doi:10.1109/TMI.2003.809072",
    "mixup": "Zhang H et al. mixup: beyond empirical risk minimization. ICLR 2018. arXiv:1710.09412",
    "moddrop": "Neverova N et al. ModDrop: adaptive multi-modal gesture recognition. IEEE Trans Pattern Anal Mach Intell "
    "2016;38:1692-1706. doi:10.1109/TPAMI.2015.2461544",
    "n4": "Tustison NJ et al. N4ITK: improved N3 bias correction. IEEE Trans Med Imaging 2010;29:1310-1320. "
    "doi:10.1109/TMI.2010.2046908",
    "nadeau": "Nadeau C, Bengio Y. Inference for the generalization error. Mach Learn 2003;52:239-281. "
    "doi:10.1023/A:1024068626366",
    "newcombe": "Newcombe RG. Confidence intervals for an effect size measure based on the Mann-Whitney statistic. Part 2. Stat "
    "Med 2006;25:559-573. doi:10.1002/sim.2324",
    "occlusion": "Zeiler MD, Fergus R. Visualizing and understanding convolutional networks. ECCV 2014. arXiv:1311.2901",
    "phipson": "Phipson B, Smyth GK. Permutation p-values should never be zero. Stat Appl Genet Mol Biol 2010;9:39. "
    "doi:10.2202/1544-6115.1585",
    "pointing": "Zhang J et al. Top-down neural attention by excitation backprop. Int J Comput Vis 2018;126:1084-1102. "
    "doi:10.1007/s11263-017-1059-x",
    "probe": "Alain G, Bengio Y. Understanding intermediate layers using linear classifier probes. ICLR workshop 2017. "
    "arXiv:1610.01644",
    "rise": "Petsiuk V, Das A, Saenko K. RISE: randomized input sampling for explanation of black-box models. BMVC 2018. "
    "arXiv:1806.07421",
    "rmst": "Royston P, Parmar MKB. Restricted mean survival time: an alternative to the hazard ratio. BMC Med Res Methodol "
    "2013;13:152. doi:10.1186/1471-2288-13-152",
    "rollout": "Abnar S, Zuidema W. Quantifying attention flow in transformers. ACL 2020. arXiv:2005.00928",
    "sanity": "Adebayo J et al. Sanity checks for saliency maps. NeurIPS 2018. arXiv:1810.03292",
    "sgdr": "Loshchilov I, Hutter F. SGDR: stochastic gradient descent with warm restarts. ICLR 2017. arXiv:1608.03983",
    "shapley": "Lundberg SM, Lee SI. A unified approach to interpreting model predictions. NeurIPS 2017. arXiv:1705.07874",
    "sunxu": "Sun X, Xu W. Fast implementation of DeLong's algorithm for comparing the areas under correlated receiver operating "
    "characteristic curves. IEEE Signal Process Lett 2014;21:1389-1393. doi:10.1109/LSP.2014.2337313",
    "dinov2": "Oquab M et al. DINOv2: learning robust visual features without supervision. TMLR 2024. arXiv:2304.07193",
    "tokenmix": "Liu J et al. TokenMix: rethinking image mixing for data augmentation in vision transformers. ECCV 2022. "
    "arXiv:2207.08409",
    "laws": "Laws KI. Rapid texture identification. Proc SPIE 1980;238:376-381. doi:10.1117/12.959169",
    "qiao": "Qiao T et al. Exploring human-like attention supervision in visual question answering. AAAI 2018. arXiv:1709.06308",
    "uno": "Uno H et al. On the C-statistics for evaluating overall adequacy of risk prediction procedures with censored "
    "survival data. Stat Med 2011;30:1105-1117. doi:10.1002/sim.4154",
    "unoauc": "Uno H et al. Evaluating prediction rules for t-year survivors with censored regression models. J Am Stat Assoc "
    "2007;102:527-537. doi:10.1198/016214507000000149",
    "vickers": "Vickers AJ, Elkin EB. Decision curve analysis: a novel method for evaluating prediction models. Med Decis Making "
    "2006;26:565-574. doi:10.1177/0272989X06295361",
    "vickerssurvival": "Vickers AJ et al. Extensions to decision curve analysis, a novel method for evaluating diagnostic tests, "
    "prediction models and molecular markers. BMC Med Inform Decis Mak 2008;8:53. doi:10.1186/1472-6947-8-53",
    "vit": "Dosovitskiy A et al. An image is worth 16x16 words: transformers for image recognition at scale. ICLR 2021. "
    "arXiv:2010.11929",
    "xiao": "Xiao T et al. Early convolutions help transformers see better. NeurIPS 2021. arXiv:2106.14881",
    "wilson": "Wilson EB. Probable inference, the law of succession, and statistical inference. J Am Stat Assoc 1927;22:209-212. "
    "doi:10.1080/01621459.1927.10502953",
}


def numbered(text: str) -> str:
    """The text with its keys as numbers in order of first use, and the list of these references under it.

    Raises KeyError for a key that is not in `REFERENCES`.
    """
    order: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return " [" + ", ".join(str(order.setdefault(key, len(order) + 1)) for key in found[1].split(",")) + "]"

    text = CITATION.sub(number, text)
    if not order:
        return text
    return text + "\n\n## References\n\n" + "\n".join(f"{place}. {escape(REFERENCES[key])}" for key, place in order.items())


def uncited(text: str) -> str:
    """The text without its citations."""
    return CITATION.sub("", text)
