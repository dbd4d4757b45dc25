"""The URLs for logging in, the account, tokens and members."""

from __future__ import annotations

from django.urls import path

from evalsite.access import factor_views, views
from evalsite.access.single_sign_on import views as single_sign_on

app_name = "access"
urlpatterns = [
    path("login/", views.login_page, name="login"),
    path("login/second/", factor_views.login_second, name="login-second"),
    path("login/passkey/", factor_views.login_passkey, name="login-passkey"),
    path("login/passkey/question/", factor_views.login_question, name="login-question"),
    path("login/<str:user_code>/<str:token>/", views.login_once, name="login-once"),
    path("sign-in/", single_sign_on.sign_in, name="sign-in"),
    path("sign-in/return/", single_sign_on.sign_in_return, name="sign-in-return"),
    path("logout/", views.logout_page, name="logout"),
    path("password/<str:user_code>/<str:token>/", views.password_set, name="password-set"),
    path("account/", views.account, name="account"),
    path("account/sessions/end/", views.sessions_end, name="sessions-end"),
    path("account/password/", views.password, name="password"),
    path("account/confirm/", factor_views.confirm_page, name="confirm"),
    path("account/confirm/question/", factor_views.confirm_question, name="confirm-question"),
    path("account/factors/", factor_views.factors_page, name="factors"),
    path("account/factors/app/", factor_views.app, name="app"),
    path("account/factors/app/remove/", factor_views.app_remove, name="app-remove"),
    path("account/factors/codes/", factor_views.recovery_codes, name="recovery-codes"),
    path("account/factors/passkeys/", factor_views.passkey_add, name="passkey-add"),
    path(
        "account/factors/passkeys/question/", factor_views.passkey_question, name="passkey-question"
    ),
    path(
        "account/factors/passkeys/<int:pk>/remove/",
        factor_views.passkey_remove,
        name="passkey-remove",
    ),
    path("account/tokens/", views.token_list, name="tokens"),
    path("account/tokens/<int:pk>/revoke/", views.token_revoke, name="token-revoke"),
    path("members/", views.member_list, name="members"),
    path("members/add/", views.member_add, name="member-add"),
    path("members/<int:pk>/", views.member, name="member"),
    path("members/<int:pk>/status/", views.member_status, name="member-status"),
    path("members/<int:pk>/sessions/end/", views.member_sessions_end, name="member-sessions-end"),
    path("members/<int:pk>/scripts/", views.member_scripts, name="member-scripts"),
    path("members/<int:pk>/erase/", views.member_erase, name="member-erase"),
    path(
        "members/<int:pk>/factors/remove/",
        factor_views.member_factors_remove,
        name="member-factors-remove",
    ),
    path("members/<int:pk>/email/", views.member_email, name="member-email"),
    path("members/<int:pk>/unlink/", views.member_unlink, name="member-unlink"),
    path("members/<int:pk>/link/", views.member_link, name="member-link"),
]
