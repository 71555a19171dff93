from django.db import migrations

import relayweb.recording.fields


class Migration(migrations.Migration):
    dependencies = [
        ("recording", "0010_hour_cache"),
    ]

    operations = [
        migrations.CreateModel(
            name="Unsettled",
            fields=[
                ("uuid", relayweb.recording.fields.UuidField(primary_key=True, serialize=False)),
                ("root", relayweb.recording.fields.UuidField(null=True)),
            ],
        ),
    ]
