"""The URLs for logging in, the account, tokens and members."""

from __future__ import annotations

from django.urls import path

from evalsite.access import views

app_name = "access"
urlpatterns = [
    path("login/", views.login_page, name="login"),
    path("login/<str:user_code>/<str:token>/", views.login_once, name="login-once"),
    path("logout/", views.logout_page, name="logout"),
    path("password/<str:user_code>/<str:token>/", views.password_set, name="password-set"),
    path("account/", views.account, name="account"),
    path("account/sessions/end/", views.sessions_end, name="sessions-end"),
    path("account/password/", views.password, name="password"),
    path("account/tokens/", views.token_list, name="tokens"),
    path("account/tokens/<int:pk>/revoke/", views.token_revoke, name="token-revoke"),
    path("members/", views.member_list, name="members"),
    path("members/add/", views.member_add, name="member-add"),
    path("members/<int:pk>/", views.member, name="member"),
    path("members/<int:pk>/status/", views.member_status, name="member-status"),
    path("members/<int:pk>/scripts/", views.member_scripts, name="member-scripts"),
    path("members/<int:pk>/erase/", views.member_erase, name="member-erase"),
    path("members/<int:pk>/link/", views.member_link, name="member-link"),
]
