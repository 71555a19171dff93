import datetime
from decimal import Decimal

import django.core.validators
from django.db import migrations, models

# List prices, US dollars a million tokens: model, tier, for prompts above, since, input, output, cached input, cache
# write (five minutes, an hour); of audio and of images: input, output, cached. A dash is what is not told.
NAME = "2026-06-01"
LIST = """
# OpenAI
gpt-5.2-codex standard - - 1.75 14 0.175
gpt-5.3-codex standard - - 1.75 14 0.175
gpt-5.4 standard - - 2.5 15 0.25
gpt-5.4-mini standard - - 0.75 4.5 0.075
gpt-5.4-nano standard - - 0.2 1.25 0.02
gpt-5.5 standard - - 5 30 0.5
gpt-5.4 standard 272000 - 5 22.5 0.5
gpt-5.5 standard 272000 - 10 45 1
gpt-3.5-turbo batch - - 0.25 0.75
gpt-4-turbo batch - - 5 15
gpt-4o batch - - 1.25 5
gpt-4o-mini batch - - 0.075 0.3
gpt-4.1 batch - - 1 4
gpt-4.1-mini batch - - 0.2 0.8
gpt-4.1-nano batch - - 0.05 0.2
gpt-5 batch - - 0.625 5 0.0625
gpt-5-mini batch - - 0.125 1 0.0125
gpt-5-nano batch - - 0.025 0.2 0.0025
gpt-5.1 batch - - 0.625 5 0.0625
gpt-5.2 batch - - 0.875 7 0.0875
o1 batch - - 7.5 30
o3 batch - - 1 4
o3-mini batch - - 0.55 2.2
o4-mini batch - - 0.55 2.2
gpt-5.4 batch - - 1.25 7.5 0.13
gpt-5.4-mini batch - - 0.375 2.25 0.0375
gpt-5.4-nano batch - - 0.1 0.625 0.01
gpt-5.5 batch - - 2.5 15 0.25
gpt-5.4 batch 272000 - 2.5 11.25 0.25
gpt-5.5 batch 272000 - 5 22.5 0.5
gpt-5 flex - - 0.625 5 0.0625
gpt-5-mini flex - - 0.125 1 0.0125
gpt-5-nano flex - - 0.025 0.2 0.0025
gpt-5.1 flex - - 0.625 5 0.0625
gpt-5.2 flex - - 0.875 7 0.0875
gpt-5.4 flex - - 1.25 7.5 0.13
gpt-5.4-mini flex - - 0.375 2.25 0.0375
gpt-5.4-nano flex - - 0.1 0.625 0.01
gpt-5.5 flex - - 2.5 15 0.25
o3 flex - - 1 4 0.25
o4-mini flex - - 0.55 2.2 0.138
gpt-5.4 flex 272000 - 2.5 11.25 0.25
gpt-5.5 flex 272000 - 5 22.5 0.5
gpt-4o priority - - 4.25 17 2.125
gpt-4o-mini priority - - 0.25 1 0.125
gpt-4.1 priority - - 3.5 14 0.875
gpt-4.1-mini priority - - 0.7 2.8 0.175
gpt-4.1-nano priority - - 0.2 0.8 0.05
gpt-5 priority - - 2.5 20 0.25
gpt-5-codex priority - - 2.5 20 0.25
gpt-5-mini priority - - 0.45 3.6 0.045
gpt-5.1 priority - - 2.5 20 0.25
gpt-5.1-codex priority - - 2.5 20 0.25
gpt-5.2 priority - - 3.5 28 0.35
gpt-5.2-codex priority - - 3.5 28 0.35
gpt-5.3-codex priority - - 3.5 28 0.35
gpt-5.4 priority - - 5 30 0.5
gpt-5.4-mini priority - - 1.5 9 0.15
gpt-5.5 priority - - 12.5 75 1.25
o3 priority - - 3.5 14 0.875
o4-mini priority - - 2 8 0.5
# OpenAI, spoken
gpt-4o-audio-preview standard - - 2.5 10 audio=40,80
gpt-4o-mini-audio-preview standard - - 0.15 0.6 audio=10,20
gpt-audio standard - - 2.5 10 audio=32,64
gpt-audio-mini standard - - 0.6 2.4 audio=10,20
gpt-4o-realtime-preview standard - - 5 20 2.5 audio=40,80,2.5
gpt-4o-mini-realtime-preview standard - - 0.6 2.4 0.3 audio=10,20,0.3
gpt-realtime standard - - 4 16 0.4 audio=32,64,0.4 image=5,-,0.5
gpt-realtime-mini standard - - 0.6 2.4 0.06 audio=10,20,0.3 image=0.8,-,0.08
# Anthropic
claude-opus-4-7 standard - - 5 25 0.5 6.25 10
claude-opus-4-8 standard - - 5 25 0.5 6.25 10
claude-sonnet-4 standard 200000 - 6 22.5 0.6 7.5 12
claude-sonnet-4-0 standard 200000 - 6 22.5 0.6 7.5 12
claude-sonnet-4-5 standard 200000 - 6 22.5 0.6 7.5 12
claude-sonnet-4-6 standard 200000 - 6 22.5 0.6 7.5 12
claude-sonnet-4-6 standard - 2026-03-13 3 15 0.3 3.75 6
claude-opus-4-6 standard 200000 - 10 37.5 1 12.5 20
claude-opus-4-6 standard - 2026-03-13 5 25 0.5 6.25 10
claude-3-haiku batch - - 0.125 0.625 0.015 0.15
claude-3-opus batch - - 7.5 37.5 0.75 9.375 15
claude-3-5-haiku batch - - 0.4 2 0.04 0.5 0.8
claude-3-5-sonnet batch - - 1.5 7.5 0.15 1.875 3
claude-3-7-sonnet batch - - 1.5 7.5 0.15 1.875 3
claude-haiku-4-5 batch - - 0.5 2.5 0.05 0.625 1
claude-sonnet-4 batch - - 1.5 7.5 0.15 1.875 3
claude-sonnet-4 batch 200000 - 3 11.25 0.3 3.75 6
claude-sonnet-4-0 batch - - 1.5 7.5 0.15 1.875 3
claude-sonnet-4-0 batch 200000 - 3 11.25 0.3 3.75 6
claude-sonnet-4-5 batch - - 1.5 7.5 0.15 1.875 3
claude-sonnet-4-5 batch 200000 - 3 11.25 0.3 3.75 6
claude-sonnet-4-6 batch - - 1.5 7.5 0.15 1.875 3
claude-sonnet-4-6 batch 200000 - 3 11.25 0.3 3.75 6
claude-sonnet-4-6 batch - 2026-03-13 1.5 7.5 0.15 1.875 3
claude-opus-4 batch - - 7.5 37.5 0.75 9.375 15
claude-opus-4-0 batch - - 7.5 37.5 0.75 9.375 15
claude-opus-4-1 batch - - 7.5 37.5 0.75 9.375 15
claude-opus-4-5 batch - - 2.5 12.5 0.25 3.125 5
claude-opus-4-6 batch - - 2.5 12.5 0.25 3.125 5
claude-opus-4-6 batch 200000 - 5 18.75 0.5 6.25 10
claude-opus-4-6 batch - 2026-03-13 2.5 12.5 0.25 3.125 5
claude-opus-4-7 batch - - 2.5 12.5 0.25 3.125 5
claude-opus-4-8 batch - - 2.5 12.5 0.25 3.125 5
claude-sonnet-4-6 us - - 3.3 16.5 0.33 4.125 6.6
claude-sonnet-4-6 us 200000 - 6.6 24.75 0.66 8.25 13.2
claude-sonnet-4-6 us - 2026-03-13 3.3 16.5 0.33 4.125 6.6
claude-opus-4-6 us - - 5.5 27.5 0.55 6.875 11
claude-opus-4-6 us 200000 - 11 41.25 1.1 13.75 22
claude-opus-4-6 us - 2026-03-13 5.5 27.5 0.55 6.875 11
claude-opus-4-7 us - - 5.5 27.5 0.55 6.875 11
claude-opus-4-8 us - - 5.5 27.5 0.55 6.875 11
claude-sonnet-4-6 batch+us - - 1.65 8.25 0.165 2.0625 3.3
claude-sonnet-4-6 batch+us 200000 - 3.3 12.375 0.33 4.125 6.6
claude-sonnet-4-6 batch+us - 2026-03-13 1.65 8.25 0.165 2.0625 3.3
claude-opus-4-6 batch+us - - 2.75 13.75 0.275 3.4375 5.5
claude-opus-4-6 batch+us 200000 - 5.5 20.625 0.55 6.875 11
claude-opus-4-6 batch+us - 2026-03-13 2.75 13.75 0.275 3.4375 5.5
claude-opus-4-7 batch+us - - 2.75 13.75 0.275 3.4375 5.5
claude-opus-4-8 batch+us - - 2.75 13.75 0.275 3.4375 5.5
claude-opus-4-6 fast - - 30 150 3 37.5 60
claude-opus-4-6 fast 200000 - 60 225 6 75 120
claude-opus-4-6 fast - 2026-03-13 30 150 3 37.5 60
claude-opus-4-7 fast - - 30 150 3 37.5 60
claude-opus-4-8 fast - - 10 50 1 12.5 20
claude-opus-4-6 fast+us - - 33 165 3.3 41.25 66
claude-opus-4-6 fast+us 200000 - 66 247.5 6.6 82.5 132
claude-opus-4-6 fast+us - 2026-03-13 33 165 3.3 41.25 66
claude-opus-4-7 fast+us - - 33 165 3.3 41.25 66
claude-opus-4-8 fast+us - - 11 55 1.1 13.75 22
# Google
gemini-2.0-flash standard - - 0.1 0.4 0.025 audio=0.7,-,0.175 image=0.1,-,0.025
gemini-2.0-flash batch - - 0.05 0.2 0.025 audio=0.35,-,0.175 image=0.05,-,0.025
gemini-2.5-flash standard - - 0.3 2.5 0.03 audio=1,-,0.1 image=0.3,-,0.03
gemini-2.5-flash batch - - 0.15 1.25 0.03 audio=0.5,-,0.1 image=0.15,-,0.03
gemini-2.5-flash flex - - 0.15 1.25 0.03 audio=0.5,-,0.1 image=0.15,-,0.03
gemini-2.5-flash priority - - 0.54 4.5 0.054 audio=1.8,-,0.18 image=0.54,-,0.054
gemini-2.5-flash-lite standard - - 0.1 0.4 0.01 audio=0.3,-,0.03 image=0.1,-,0.01
gemini-2.5-flash-lite batch - - 0.05 0.2 0.01 audio=0.15,-,0.03 image=0.05,-,0.01
gemini-2.5-flash-lite flex - - 0.05 0.2 0.01 audio=0.15,-,0.03 image=0.05,-,0.01
gemini-2.5-flash-lite priority - - 0.18 0.72 0.018 audio=0.54,-,0.054 image=0.18,-,0.018
gemini-2.5-pro standard - - 1.25 10 0.125 audio=1.25,-,0.125 image=1.25,-,0.125
gemini-2.5-pro standard 200000 - 2.5 15 0.25 audio=2.5,-,0.25 image=2.5,-,0.25
gemini-2.5-pro batch - - 0.625 5 0.125 audio=0.625,-,0.125 image=0.625,-,0.125
gemini-2.5-pro batch 200000 - 1.25 7.5 0.25 audio=1.25,-,0.25 image=1.25,-,0.25
gemini-2.5-pro flex - - 0.625 5 0.125 audio=0.625,-,0.125 image=0.625,-,0.125
gemini-2.5-pro flex 200000 - 1.25 7.5 0.25 audio=1.25,-,0.25 image=1.25,-,0.25
gemini-2.5-pro priority - - 2.25 18 0.225 audio=2.25,-,0.225 image=2.25,-,0.225
gemini-2.5-pro priority 200000 - 4.5 27 0.45 audio=4.5,-,0.45 image=4.5,-,0.45
gemini-3-flash-preview standard - - 0.5 3 0.05 audio=1,-,0.1 image=0.5,-,0.05
gemini-3-flash-preview batch - - 0.25 1.5 0.05 audio=0.5,-,0.1 image=0.25,-,0.05
gemini-3-flash-preview flex - - 0.25 1.5 0.05 audio=0.5,-,0.1 image=0.25,-,0.05
gemini-3-flash-preview priority - - 0.9 5.4 0.09 audio=1.8,-,0.18 image=0.9,-,0.09
gemini-3.1-pro-preview standard - - 2 12 0.2 audio=2,-,0.2 image=2,-,0.2
gemini-3.1-pro-preview standard 200000 - 4 18 0.4 audio=4,-,0.4 image=4,-,0.4
gemini-3.1-pro-preview batch - - 1 6 0.2 audio=1,-,0.2 image=1,-,0.2
gemini-3.1-pro-preview batch 200000 - 2 9 0.4 audio=2,-,0.4 image=2,-,0.4
gemini-3.1-pro-preview flex - - 1 6 0.2 audio=1,-,0.2 image=1,-,0.2
gemini-3.1-pro-preview flex 200000 - 2 9 0.4 audio=2,-,0.4 image=2,-,0.4
gemini-3.1-pro-preview priority - - 3.6 21.6 0.36 audio=3.6,-,0.36 image=3.6,-,0.36
gemini-3.1-pro-preview priority 200000 - 7.2 32.4 0.72 audio=7.2,-,0.72 image=7.2,-,0.72
"""
SEARCHED = {"claude-": 10, "gpt-5": 10, "o1": 10, "o3": 10, "o4-": 10}
"""US dollars a thousand web searches, by how a model's name begins."""
TEXT = ("input", "output", "cached", "cache_write", "cache_write_1h")
BESIDE = {kind: [f"{kind}_{part}" for part in ("input", "output", "cached")] for kind in ("audio", "image")}


def price(apps, schema_editor):
    """Prices of tiers, sizes and of what is no text; those that somebody gave stay."""
    Price, PriceTable = apps.get_model("recording", "Price"), apps.get_model("recording", "PriceTable")
    for model, tier, above, since, *prices in (
        line.split() for line in LIST.strip().splitlines() if not line.startswith("#")
    ):
        beside = dict(part.split("=") for part in prices if "=" in part)
        text = dict(zip(TEXT, map(_number, (part for part in prices if "=" not in part))))
        found, _ = Price.objects.get_or_create(
            model=model,
            provider="",
            tier=tier,
            above=_number(above) or 0,
            since=datetime.date(2020, 1, 1) if since == "-" else datetime.date.fromisoformat(since),
            defaults=text,
        )
        for kind, told in beside.items():
            for column, value in zip(BESIDE[kind], map(_number, told.split(","))):
                setattr(found, column, value)
        found.save()
    for start, dollars in SEARCHED.items():
        Price.objects.filter(model__startswith=start).update(web_search=dollars)
    PriceTable.objects.filter(id=1).update(name=NAME)


def _number(text):
    return None if text == "-" else Decimal(text)


class Migration(migrations.Migration):
    dependencies = [("recording", "0001_initial")]

    operations = [
        migrations.AlterModelOptions(
            name="price",
            options={"ordering": ("model", "provider", "since", "tier", "above")},
        ),
        migrations.RemoveConstraint(
            model_name="price",
            name="price_once",
        ),
        migrations.AddField(
            model_name="price",
            name="above",
            field=models.PositiveBigIntegerField(
                default=0,
                help_text="Only for prompts of more tokens than this, for example 200000. A price of a newer day replaces those for all sizes.",
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="audio_cached",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Audio read from the cache. Empty: not known, and calls with some have no cost.",
                max_digits=12,
                null=True,
                validators=[django.core.validators.MinValueValidator(Decimal("0"))],
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="audio_input",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Audio read. Empty: not known, and calls with some have no cost.",
                max_digits=12,
                null=True,
                validators=[django.core.validators.MinValueValidator(Decimal("0"))],
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="audio_output",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Audio written. Empty: not known, and calls with some have no cost.",
                max_digits=12,
                null=True,
                validators=[django.core.validators.MinValueValidator(Decimal("0"))],
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="image_cached",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Images read from the cache. Empty: not known, and calls with some have no cost.",
                max_digits=12,
                null=True,
                validators=[django.core.validators.MinValueValidator(Decimal("0"))],
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="image_input",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Images and video read, where the usage counts them apart. Empty: not known, and calls with some have no cost.",
                max_digits=12,
                null=True,
                validators=[django.core.validators.MinValueValidator(Decimal("0"))],
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="image_output",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Images written. Empty: not known, and calls with some have no cost.",
                max_digits=12,
                null=True,
                validators=[django.core.validators.MinValueValidator(Decimal("0"))],
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="tier",
            field=models.CharField(
                default="standard",
                help_text="Service tier: standard, flex, batch, priority, fast … or two, batch+us. Calls of a tier that is not listed have no cost.",
                max_length=40,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[^\\sA-Z]+\\Z", "Give a name in small letters without spaces, for example flex."
                    )
                ],
            ),
        ),
        migrations.AddField(
            model_name="price",
            name="web_search",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="US dollars a thousand web searches by the provider. Empty: not known, and calls with some have no cost.",
                max_digits=12,
                null=True,
                validators=[django.core.validators.MinValueValidator(Decimal("0"))],
            ),
        ),
        migrations.AddField(
            model_name="scope",
            name="service_tier",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="scope",
            name="usage_details",
            field=models.TextField(null=True),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.UniqueConstraint(
                fields=("model", "provider", "since", "tier", "above"),
                name="price_once",
                violation_error_message="This model, provider, day, tier and size already have a price; change that one.",
            ),
        ),
        migrations.RunPython(price, migrations.RunPython.noop),
    ]
