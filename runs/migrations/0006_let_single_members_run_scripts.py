from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0005_index_leases_for_every_database"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="run",
            options={
                "ordering": ("-created_at", "-id"),
                "permissions": (
                    ("start_run", "Can start, stop and retry runs"),
                    ("run_scripts", "Can start runs that run scripts and programs"),
                ),
            },
        ),
    ]
