from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0004_date_runs_and_events_by_the_databases_clock"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="result",
            name="result_expiring_leases",
        ),
        migrations.AddIndex(
            model_name="result",
            index=models.Index(
                condition=models.Q(("lease_until__isnull", False)),
                fields=["lease_until"],
                name="result_lease",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("summary__isnull", True)),
                fields=["status"],
                name="run_without_summary",
            ),
        ),
    ]
