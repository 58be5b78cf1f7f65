"""mri_vit: brain-tumour MRI to cross-validated predictions, a report and attention maps."""

__version__ = "0.5.0"
