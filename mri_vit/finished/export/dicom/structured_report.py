"""Structured report: a prediction's summary goes in; an Imaging Measurement Report (DICOM PS3.16, TID 1500) comes out.

Each endpoint, the tumour and the prediction itself are a measurement group (TID 1501) of numbers and texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from highdicom.coding_schemes import CodingSchemeIdentificationItem
from highdicom.sr import (
    AlgorithmIdentification,
    CodedConcept,
    DeviceObserverIdentifyingAttributes,
    EnhancedSR,
    FindingSite,
    Measurement,
    MeasurementReport,
    MeasurementsAndQualitativeEvaluations,
    ObservationContext,
    ObserverContext,
    ReferencedSegment,
    RelationshipTypeValues,
    SourceSeriesForSegmentation,
    TextContentItem,
    TrackingIdentifier,
    VolumetricROIMeasurementsAndQualitativeEvaluations,
)
from pydicom import Dataset
from pydicom.sr.codedict import codes

from mri_vit.finished.export.dicom.common_modules import SCHEME, Export, completed, cut, private_code
from mri_vit.finished.export.dicom.segmentation import TUMOUR, tracking_uid
from mri_vit.finished.export.dicom.summary import RESEARCH_USE, EndpointSummary, Figure, Sentence, Summary

MILLILITRE = CodedConcept("ml", "UCUM", "ml")
Group = MeasurementsAndQualitativeEvaluations | VolumetricROIMeasurementsAndQualitativeEvaluations


def structured_report(
    summary: Summary, export: Export, segmentation: Dataset | None, objects: Sequence[Dataset], series: int
) -> Dataset:
    """The report, in the `series`-th series.

    `objects` are all others of the export, which it names as evidence, the `segmentation` among them.
    """
    algorithm = AlgorithmIdentification(name="mri-vit", version=export.software, parameters=[f"networks {export.model_id}"])
    groups = [_prediction(summary, export), *(_endpoint(one, export, algorithm) for one in summary.endpoints)]
    groups.append(_tumour(summary, export, segmentation))
    observer = DeviceObserverIdentifyingAttributes(
        uid=export.uid("device", export.model_id),
        name="mri-vit",
        manufacturer_name="mri-vit",
        model_name=cut(export.predicted.document.run.study, "LO"),
        serial_number=export.model_id,
    )
    report = MeasurementReport(
        observation_context=ObservationContext(
            observer_device_context=ObserverContext(observer_type=codes.DCM.Device, observer_identifying_attributes=observer)
        ),
        procedure_reported=codes.LN.MRIUnspecifiedBodyRegion,
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
    )
    images = () if export.source.is_anonymous else export.source.images
    made = EnhancedSR(
        evidence=[*images, *objects],
        content=report,
        is_complete=True,
        is_final=False,
        series_description="mri-vit research: report",
        coding_schemes=[CodingSchemeIdentificationItem(SCHEME, name="Codes of mri-vit", responsible_organization="mri-vit")],
        **export.placed("report", series),
    )
    return completed(made, export)


def _prediction(summary: Summary, export: Export) -> Group:
    """What a reader must know before any number."""
    group = MeasurementsAndQualitativeEvaluations(tracking_identifier=_tracking("Prediction", export))
    texts = [Sentence("use", "Intended use", RESEARCH_USE), Sentence("model", "Model", summary.model)]
    texts += [Sentence("caution", "Caution", text) for text in summary.cautions]
    texts += [Sentence("quality", "Quality", text) for text in summary.quality]
    return _with_texts(group, texts)


def _endpoint(one: EndpointSummary, export: Export, algorithm: AlgorithmIdentification) -> Group:
    group = MeasurementsAndQualitativeEvaluations(
        tracking_identifier=_tracking(one.title, export),
        algorithm_id=algorithm,
        finding_sites=[FindingSite(anatomic_location=codes.SCT.Brain)],
        measurements=[_measurement(figure) for figure in one.figures] or None,
    )
    return _with_texts(group, one.sentences)


def _tumour(summary: Summary, export: Export, segmentation: Dataset | None) -> Group:
    volume = None
    if summary.tumour_ml is not None:
        volume = [Measurement(name=codes.SCT.Volume, value=summary.tumour_ml, unit=MILLILITRE)]
    about = {
        "tracking_identifier": TrackingIdentifier(uid=tracking_uid(export), identifier=TUMOUR),
        "finding_type": codes.SCT.Neoplasm,
        "finding_sites": [FindingSite(anatomic_location=codes.SCT.Brain)],
        "measurements": volume,
    }
    group: Group
    if segmentation is None or export.source.is_anonymous:  # a segment is referred to with the series that it was drawn on
        group = MeasurementsAndQualitativeEvaluations(**about)
    else:
        segment = ReferencedSegment(
            sop_class_uid=segmentation.SOPClassUID,
            sop_instance_uid=segmentation.SOPInstanceUID,
            segment_number=1,
            source_series=SourceSeriesForSegmentation(export.source.images[0].SeriesInstanceUID),
        )
        group = VolumetricROIMeasurementsAndQualitativeEvaluations(referenced_segment=segment, **about)
    return _with_texts(group, [Sentence("tumour", "Tumour", summary.tumour)])


def _measurement(figure: Figure) -> Measurement:
    unit = private_code("unit", figure.unit) if figure.unit else codes.UCUM.NoUnits
    return Measurement(name=private_code(figure.code, figure.name), value=figure.value, unit=unit)


def _tracking(name: str, export: Export) -> TrackingIdentifier:
    return TrackingIdentifier(uid=export.uid("tracking", name), identifier=name)


def _with_texts(group: Group, texts: Iterable[Sentence]) -> Group:
    """TID 1501 has texts beside codes (rows of qualitative evaluations), for which highdicom has no argument."""
    group[0].ContentSequence.extend(_texts(texts))
    return group


def _texts(texts: Iterable[Sentence]) -> Iterator[TextContentItem]:
    for one in texts:
        name = private_code(one.code, one.label)
        yield TextContentItem(name=name, value=one.text, relationship_type=RelationshipTypeValues.CONTAINS)
