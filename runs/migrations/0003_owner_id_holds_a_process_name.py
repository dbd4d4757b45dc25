from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0002_keep_what_was_asked_of_retries"),
    ]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="owner_id",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
    ]
