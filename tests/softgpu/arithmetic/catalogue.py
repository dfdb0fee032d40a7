"""All families of forms, by name."""

from __future__ import annotations

from tests.softgpu.arithmetic import atomic_forms, conversion_forms, float_forms, integer_forms
from tests.softgpu.arithmetic.forms import Family, family

FAMILIES: dict[str, Family] = {
    name: family(name, forms)
    for name, forms in (
        ("integer_sums", integer_forms.sums()),
        ("integer_products", integer_forms.products()),
        ("integer_quotients", integer_forms.quotients()),
        ("bits", integer_forms.bits()),
        ("integer_comparisons", integer_forms.comparisons()),
        ("packed", integer_forms.packed()),
        ("single", float_forms.single()),
        ("double", float_forms.double()),
        ("half", float_forms.half()),
        ("brain", float_forms.brain()),
        ("float_comparisons", float_forms.comparisons()),
        ("approximations", float_forms.approximations()),
        ("integer_conversions", conversion_forms.between_integers()),
        ("to_integers", conversion_forms.to_integers()),
        ("from_integers", conversion_forms.from_integers()),
        ("float_conversions", conversion_forms.between_floats()),
        ("atomics", atomic_forms.atomics()),
    )
}
