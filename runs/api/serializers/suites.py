"""Suites, versions and cases."""

from __future__ import annotations

from rest_framework import serializers

from runs.api.serializers import parts
from runs.api.serializers.parts import Described, PolicySerializer

TREE = (
    "The evaluators as a tree: name, kind, weight, required, required_below, negate, config, "
    "children; null where none are kept."
)


class SuiteSerializer(Described):
    """A suite as lists show it."""

    slug = parts.words("Its name in addresses.")
    title = parts.words("Its title.")
    description = parts.words("What it is for.")
    tags = parts.names("Its tags.")
    version = parts.count("Its current version.")
    judge = parts.words_or_none("The slug of the language model that judges; null without one.")
    cases = parts.count("How many cases it has now.")
    runs = parts.count("How many runs it has.")
    baseline_run_id = parts.count_or_none("The id of the run that others are held against.")
    baseline_run = parts.words_or_none("The name of that run, as support-agent:12.")
    archived_at = parts.time_or_none("When it was archived; null while it is not.")
    created_at = parts.time("When it was made.")
    updated_at = parts.time("When it last changed.")


class WholeSuiteSerializer(SuiteSerializer):
    """A suite with its policy and evaluators."""

    policy = PolicySerializer(help_text="The policy that its next run has.")
    evaluators = parts.mapping(TREE, allow_null=True)
    files = parts.names("The paths of the files it refers to.")


class VersionSerializer(Described):
    """A version of a suite as lists show it."""

    number = parts.count("Its number, from 1.")
    is_current = parts.flag("Whether the suite is at this version.")
    note = parts.words("What its author said of it.")
    author = parts.words_or_none("Who made it; null where that is not known.")
    created_at = parts.time("When it was made.")
    content_hash = parts.words("The same for the same content.")


class CaseOfVersionSerializer(Described):
    """Which revision of a case a version holds."""

    key = parts.words("The key of the case.")
    revision = parts.count("Its revision.")


class WholeVersionSerializer(VersionSerializer):
    """What a suite was at a version."""

    title = parts.words("The title then.")
    description = parts.words("The description then.")
    tags = parts.names("The tags then.")
    judge = parts.words_or_none("The slug of the judge then; null without one.")
    metadata = parts.mapping("What else the suite's file said.")
    policy = PolicySerializer(help_text="The policy then.")
    evaluators = parts.mapping(TREE)
    files = parts.names("The paths of its files.")
    cases = CaseOfVersionSerializer(many=True, help_text="Its cases in order.")


class CaseSerializer(Described):
    """A case as lists show it."""

    key = parts.words("Its name in the suite.")
    revision = parts.count("The revision, from 1.")
    is_current = parts.flag("Whether new runs carry out this revision.")
    position = parts.count("Its place in the suite.")
    title = parts.words("Its title.")
    tags = parts.names("Its tags.")
    created_at = parts.time("When this revision was made.")


class WholeCaseSerializer(CaseSerializer):
    """A revision of a case in full."""

    input = serializers.ListField(
        child=serializers.DictField(), help_text="What is asked: messages with role and content."
    )
    expected_output = parts.words("What a good answer is; empty without one.")
    expected_outcomes = serializers.ListField(help_text="What a good answer does, one by one.")
    criteria = parts.words("How the answer is to be judged; empty without any.")
    metadata = parts.mapping("What else the case holds.")
    evaluators = parts.mapping("Evaluators of its own, as a tree; null without.", allow_null=True)
    evaluators_append = parts.flag("Whether its own join the suite's instead of replacing them.")
    recorded_output = serializers.JSONField(
        help_text="The answer that a recorded target gives; null without one."
    )
