"""Second factors: codes of an authenticator app (RFC 6238), recovery codes, and who must have a factor."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.constant_time import bytes_eq
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from evalsite.access.models import MemberFactors, Passkey, RecoveryCode, record_change
from evalsite.access.roles import EVERYBODY, highest_role
from evaluators.model_calls.models import decrypt, encrypt
from evaluators.models import NOT_LOGGED_IN
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted

# What every authenticator app supports.
DIGITS, STEP_S, SECRET_BYTES = 6, 30, 20
# A clock may be half a minute wrong, or somebody type slowly.
DRIFT_STEPS = 1
# Three codes in a million are right at any time, so even a guesser whose address changes at every try has one chance in
# 1,400 a day. Recovery codes and passkeys go on working meanwhile.
MAX_WRONG_CODES, WRONG_CODES_WITHIN = 10, timedelta(hours=1)
# With 120 random bits a fast hash is enough.
RECOVERY_CODES, RECOVERY_CODE_BYTES = 10, 15


class LastFactorError(DomainError):
    """The site requires a second factor of the member, and this is the only one."""

    code = "last_factor"


class CodesPausedError(DomainError):
    """Too many wrong codes were entered for the member's app."""

    code = "codes_paused"


@dataclass(frozen=True, slots=True)
class FactorRow:
    """The factors of a member; `app_added_at` is None without an authenticator app."""

    app_added_at: datetime | None
    passkeys: Sequence[Passkey]
    recovery_codes_left: int
    is_required: bool

    @property
    def is_any(self) -> bool:
        """Tell whether the member has a second factor."""
        return self.app_added_at is not None or bool(self.passkeys)


def read_factors(member: User) -> FactorRow:
    """Return what a member has; three queries."""
    app = MemberFactors.objects.filter(user=member).first()
    return FactorRow(
        app_added_at=app.app_added_at if app else None,
        passkeys=list(Passkey.objects.filter(user=member)),
        recovery_codes_left=RecoveryCode.objects.filter(user=member, used_at=None).count(),
        is_required=requires_factor(member),
    )


def has_factor(member: User) -> bool:
    """Tell whether a password or link alone does not log the member in."""
    return has_app(member) or Passkey.objects.filter(user=member).exists()


def has_app(member: User) -> bool:
    """Tell whether the member has an authenticator app."""
    return _with_app().filter(user=member).exists()


def factor_names(members: Sequence[User]) -> dict[int, str]:
    """Return in words which factors each member has, "" for none; two queries."""
    apps = {*_with_app().filter(user__in=members).values_list("user_id", flat=True)}
    rows = Passkey.objects.filter(user__in=members).values_list("user_id")
    # An order by other columns would split the groups.
    passkeys = dict(rows.annotate(Count("pk")).order_by())
    names = {}
    for member in members:
        count = passkeys.get(member.pk, 0)
        keys = counted(count, "passkey") if count else ""
        names[member.pk] = ", ".join(filter(None, ("app" if member.pk in apps else "", keys)))
    return names


def requires_factor(member: User) -> bool:
    """Tell whether EVALSITE_REQUIRE_SECOND_FACTOR names everybody or the member's role."""
    role = highest_role(member)
    required = settings.REQUIRE_SECOND_FACTOR
    return EVERYBODY in required or (role is not None and role.value in required)


def new_secret() -> str:
    """Return a secret for an authenticator app, in base 32 as people type it."""
    return base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode("ascii")


def app_address(secret: str, *, member: User, site: str) -> str:
    """Return the address that the QR code holds: `otpauth://totp/…`."""
    return _codes(secret).get_provisioning_uri(member.get_username(), site)


def matching_step(secret: str, code: str, *, now: datetime) -> int | None:
    """Return the time step of a right code, at most one step away from now; None for a wrong code."""
    typed = "".join(code.split()).encode(errors="surrogatepass")
    current = int(now.timestamp()) // STEP_S
    for step in range(current - DRIFT_STEPS, current + DRIFT_STEPS + 1):
        if bytes_eq(_codes(secret).generate(step * STEP_S), typed):
            return step
    return None


def add_app(member: User, secret: str, code: str, *, now: datetime) -> bool:
    """Store the secret of an app, in place of an earlier one, if it shows this code; the code works no more."""
    step = matching_step(secret, code, now=now)
    if step is None:
        return False
    with transaction.atomic():
        row = _row(member)
        row.encrypted_secret, row.app_added_at, row.last_step = encrypt(secret), now, step
        row.wrong_codes, row.first_wrong_at = 0, None
        row.save()
        record_change(member, "member.app_added", member)
    return True


def use_code(member: User, code: str, *, now: datetime) -> bool:
    """Use up the code that the member's app shows; False for a wrong or used one.

    Raises:
        CodesPausedError: MAX_WRONG_CODES wrong codes were entered within an hour.

    """
    with transaction.atomic():
        row = _with_app().select_for_update().filter(user=member).first()
        if row is None:
            return False
        if row.first_wrong_at and now - row.first_wrong_at > WRONG_CODES_WITHIN:
            row.wrong_codes, row.first_wrong_at = 0, None
        if row.wrong_codes >= MAX_WRONG_CODES:
            raise CodesPausedError(
                "Too many wrong codes were entered. Codes of the app work again within an hour; "
                "a recovery code or a passkey works now."
            )
        step = matching_step(decrypt(row.encrypted_secret), code, now=now)
        is_right = step is not None and step > row.last_step
        if is_right and step is not None:
            row.last_step, row.wrong_codes, row.first_wrong_at = step, 0, None
        else:
            row.wrong_codes, row.first_wrong_at = row.wrong_codes + 1, row.first_wrong_at or now
            if row.wrong_codes == MAX_WRONG_CODES:
                row.paused_at = now
                record_change(None, "member.codes_paused", member, nobody=NOT_LOGGED_IN)
        row.save()
    return is_right


@transaction.atomic
def remove_app(member: User) -> None:
    """Remove the member's authenticator app.

    Raises:
        LastFactorError: the site requires a factor, and it is the only one.

    """
    _row(member)
    _refuse_last(member, is_other_left=Passkey.objects.filter(user=member).exists())
    if _with_app().filter(user=member).update(encrypted_secret="", app_added_at=None):
        record_change(member, "member.app_removed", member)
        _forget_useless_codes(member)


@transaction.atomic
def remove_passkey(member: User, pk: int) -> None:
    """Remove a passkey of the member; the authenticator itself may still offer it.

    Raises:
        LastFactorError: the site requires a factor, and it is the only one.
        Passkey.DoesNotExist: the member has no such passkey.

    """
    _row(member)
    passkey = Passkey.objects.get(user=member, pk=pk)
    others = Passkey.objects.filter(user=member).exclude(pk=pk).exists()
    _refuse_last(member, is_other_left=others or has_app(member))
    passkey.delete()
    record_change(member, "member.passkey_removed", member, after={"passkey": passkey.name})
    _forget_useless_codes(member)


@transaction.atomic
def new_recovery_codes(member: User) -> list[str]:
    """Replace the member's recovery codes and return them; only hashes are stored."""
    _row(member)
    codes = [_new_recovery_code() for _ in range(RECOVERY_CODES)]
    RecoveryCode.objects.filter(user=member).delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(user=member, code_hash=_recovery_hash(member, code)) for code in codes
    )
    record_change(member, "member.recovery_codes_made", member)
    return codes


def use_recovery_code(member: User, code: str) -> bool:
    """Use up a recovery code of the member; False for a wrong or used one. Case and dashes do not count."""
    unused = RecoveryCode.objects.filter(
        user=member, code_hash=_recovery_hash(member, code), used_at=None
    )
    if not unused.update(used_at=timezone.now()):
        return False
    left = RecoveryCode.objects.filter(user=member, used_at=None).count()
    record_change(member, "member.recovery_code_used", member, after={"left": str(left)})
    return True


@transaction.atomic
def remove_factors(member: User, *, by: User | None) -> bool:
    """Remove all factors of a member who has lost them, and keep a notice; False if there were none.

    `by` is None for a command on the server.
    """
    row = _row(member)
    if not has_factor(member):
        return False
    row.encrypted_secret, row.app_added_at = "", None
    row.removed_by = by.get_username() if by else ""
    row.removed_at = timezone.now()
    row.save()
    Passkey.objects.filter(user=member).delete()
    RecoveryCode.objects.filter(user=member).delete()
    record_change(by, "member.factors_removed", member)
    return True


def take_notices(member: User) -> list[str]:
    """Return once, in words, what happened to the member's factors without the member."""
    row = MemberFactors.objects.filter(user=member).first()
    notices = []
    if row and row.removed_at:
        who = row.removed_by or "A command on the server"
        notices.append(
            f"{who} removed your second factor on {_day(row.removed_at)}. Set one up again."
        )
    if row and row.paused_at:
        notices.append(
            f"On {_day(row.paused_at)} {MAX_WRONG_CODES} wrong authenticator codes were entered, "
            "after your correct password or in one of your sessions. If this was not you, change your password."
        )
    if notices:
        MemberFactors.objects.filter(user=member).update(
            removed_at=None, removed_by="", paused_at=None
        )
    return notices


def _day(moment: datetime) -> str:
    local = timezone.localtime(moment)
    return f"{local.day} {local:%B %Y}"


def member_handle(member: User) -> bytes:
    """Return what passkeys know the member by, making it at the first passkey."""
    with transaction.atomic():
        return bytes.fromhex(_row(member).handle)


def _with_app() -> QuerySet[MemberFactors]:
    return MemberFactors.objects.exclude(encrypted_secret="")


def _row(member: User) -> MemberFactors:
    """Return the locked row of a member, making it if there is none."""
    return MemberFactors.objects.select_for_update().get_or_create(
        user=member, defaults={"handle": secrets.token_hex(32)}
    )[0]


def _refuse_last(member: User, *, is_other_left: bool) -> None:
    if requires_factor(member) and not is_other_left:
        raise LastFactorError(
            "This site requires a second factor of you, and this is your only one. Set up another one first."
        )


def _forget_useless_codes(member: User) -> None:
    """Remove the recovery codes of a member without a factor that they could stand in for."""
    if not has_factor(member):
        RecoveryCode.objects.filter(user=member).delete()


def _codes(secret: str) -> TOTP:
    return TOTP(base64.b32decode(secret), DIGITS, SHA1(), STEP_S)  # noqa: S303  # apps know nothing else


def _new_recovery_code() -> str:
    text = base64.b32encode(secrets.token_bytes(RECOVERY_CODE_BYTES)).decode("ascii").lower()
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))


def _recovery_hash(member: User, code: str) -> str:
    plain = "".join(code.split()).replace("-", "").lower()
    value = f"{member.pk}:{plain}".encode(errors="surrogatepass")
    return salted_hmac("evalsite.recovery_codes", value, algorithm="sha256").hexdigest()
