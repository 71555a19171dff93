from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recording", "0003_loose_events")]

    operations = [
        migrations.AddIndex(
            model_name="scope",
            index=models.Index(
                condition=models.Q(("cost_pusd__isnull", True), ("total_tokens__isnull", False)),
                fields=["turn_uuid"],
                name="scope_unpriced",
            ),
        ),
    ]
