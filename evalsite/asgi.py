"""The application that gunicorn serves: Django, which gets whole requests, counted so that the worker inside yields."""

from __future__ import annotations

from django.core.wsgi import get_wsgi_application

from evalsite import load
from evalsite.serving import REQUESTS, WholeRequests

load()

application = WholeRequests(get_wsgi_application(), REQUESTS)
