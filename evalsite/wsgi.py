"""The WSGI application, which gunicorn serves."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from evalsite.celery import load
from evalsite.embedded import REQUESTS

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
load()

application = REQUESTS.wrap(get_wsgi_application())
