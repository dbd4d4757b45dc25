"""The application that gunicorn serves: Django, which gets whole requests, counted so that the worker inside yields."""

from __future__ import annotations

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from evalsite import load
from evalsite.env import limit_statements
from evalsite.serving import REQUESTS, WholeRequests

load()
# A worker may ask for what takes long, and the embedded one has the connections of this process.
if not settings.IS_EMBEDDED:
    limit_statements(settings.DATABASES["default"], seconds=settings.MAX_STATEMENT_S)

application = WholeRequests(get_wsgi_application(), REQUESTS)
