from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0011_show_how_api_tokens_begin"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="sharelink",
            options={
                "ordering": ("-created_at", "-id"),
                "permissions": (("share", "Can share snapshots by links that need no account"),),
            },
        ),
    ]
