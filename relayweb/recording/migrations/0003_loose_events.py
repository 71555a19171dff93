from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recording", "0002_service_tiers")]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("kind", 2), ("mark_of__isnull", True)), fields=["seq"], name="event_loose"
            ),
        ),
    ]
