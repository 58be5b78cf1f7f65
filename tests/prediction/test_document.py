"""The document of a prediction: it is read as it was written, and its schema describes it."""

import json

import jsonschema
import pytest
from made.prediction import EXAMPLE, example
from pydantic import ValidationError

from mri_vit.prediction import document


def test_the_file_is_read_as_it_was_written():
    text = document.dumps(example())
    assert document.Prediction.model_validate_json(text) == example()
    assert document.dumps(document.Prediction.model_validate_json(text)) == text


def test_the_schema_describes_the_file_and_refuses_a_key_too_many():
    validator = jsonschema.Draft202012Validator(document.json_schema())
    written = json.loads(document.dumps(example()))
    validator.validate(written)
    assert not validator.is_valid(written | {"diagnosis": "x"})
    with pytest.raises(ValidationError, match="diagnosis"):
        document.Prediction.model_validate(EXAMPLE | {"diagnosis": "x"})
