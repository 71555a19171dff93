import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator

FORMS = [
    (field, validator)
    for model in apps.get_models()
    if model.__module__.startswith("relayweb.")
    for field in model._meta.fields
    for validator in field.validators
    if isinstance(validator, RegexValidator)
]


@pytest.mark.parametrize(("field", "validator"), FORMS, ids=lambda it: str(getattr(it, "name", "")))
def test_no_name_may_end_in_a_line_break(field, validator):
    validator("gpt-4o")
    with pytest.raises(ValidationError):
        validator("gpt-4o\n")
