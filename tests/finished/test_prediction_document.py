"""The document of a prediction: it is read as it was written, and its schema describes it."""

import json

import jsonschema
import pytest
from made.prediction import EXAMPLE, example
from pydantic import ValidationError

from mri_vit.finished import prediction_document


def test_the_file_is_read_as_it_was_written():
    text = prediction_document.dumps(example())
    assert prediction_document.Prediction.model_validate_json(text) == example()
    assert prediction_document.dumps(prediction_document.Prediction.model_validate_json(text)) == text


def test_the_schema_describes_the_file_and_refuses_a_key_too_many():
    validator = jsonschema.Draft202012Validator(prediction_document.json_schema())
    written = json.loads(prediction_document.dumps(example()))
    validator.validate(written)
    assert not validator.is_valid(written | {"diagnosis": "x"})
    with pytest.raises(ValidationError, match="diagnosis"):
        prediction_document.Prediction.model_validate(EXAMPLE | {"diagnosis": "x"})
