"""The URLs of the API."""

from __future__ import annotations

from django.urls import path

from runs.api import (
    agreement_calls,
    alignment_calls,
    drafting_calls,
    model_calls,
    review_calls,
    run_calls,
    share_calls,
    suite_calls,
    target_calls,
    views,
)
from runs.api.schema import by_method

urlpatterns = [
    path("", views.api, name="api"),
    path("schema", views.SchemaView.as_view(), name="api-schema"),
    path("docs/", views.docs, name="api-docs"),
    path("suites", by_method(get=views.suites, post=suite_calls.create_suite), name="api-suites"),
    path("suite-check", suite_calls.check_suite, name="api-suite-check"),
    path(
        "suites/<slug:slug>",
        by_method(get=views.suite, put=suite_calls.put_suite),
        name="api-suite",
    ),
    path("suites/<slug:slug>/baseline", suite_calls.put_baseline, name="api-suite-baseline"),
    path(
        "suites/<slug:slug>/agreement/people",
        agreement_calls.people_agreement,
        name="api-people-agreement",
    ),
    path("suites/<slug:slug>/agreement/judges", agreement_calls.judges, name="api-judges"),
    path("suites/<slug:slug>/agreement/drift", agreement_calls.judge_drift, name="api-judge-drift"),
    path("suites/<slug:slug>/file", views.suite_file, name="api-suite-file"),
    path("suites/<slug:slug>/versions", views.suite_versions, name="api-suite-versions"),
    path("suites/<slug:slug>/views", views.suite_views, name="api-suite-views"),
    path("suites/<slug:slug>/versions/<int:number>", views.suite_version, name="api-suite-version"),
    path(
        "suites/<slug:slug>/alignments",
        by_method(get=alignment_calls.suite_alignments, post=alignment_calls.align),
        name="api-suite-alignments",
    ),
    path(
        "suites/<slug:slug>/alignments/estimate",
        alignment_calls.estimate_alignment,
        name="api-suite-alignments-estimate",
    ),
    path(
        "suites/<slug:slug>/alignments/<int:alignment>",
        alignment_calls.alignment,
        name="api-alignment",
    ),
    path(
        "suites/<slug:slug>/alignments/<int:alignment>/stop",
        alignment_calls.stop_alignment_call,
        name="api-alignment-stop",
    ),
    path(
        "suites/<slug:slug>/alignments/<int:alignment>/resume",
        alignment_calls.resume_alignment_call,
        name="api-alignment-resume",
    ),
    path(
        "suites/<slug:slug>/alignments/<int:alignment>/take",
        alignment_calls.take_candidate_call,
        name="api-alignment-take",
    ),
    path(
        "suites/<slug:slug>/cases",
        by_method(get=views.suite_cases, post=suite_calls.put_suite_cases),
        name="api-suite-cases",
    ),
    path(
        "suites/<slug:slug>/cases/<path:key>",
        by_method(
            get=views.suite_case,
            put=suite_calls.put_suite_case,
            delete=suite_calls.delete_suite_case,
        ),
        name="api-suite-case",
    ),
    path("suites/<slug:slug>/draft-cases", drafting_calls.draft_cases, name="api-draft-cases"),
    path(
        "suites/<slug:slug>/draft-cases/estimate",
        drafting_calls.estimate_drafting,
        name="api-draft-cases-estimate",
    ),
    path(
        "case-proposals/<int:proposal>",
        by_method(get=drafting_calls.case_proposal, delete=drafting_calls.delete_case_proposal),
        name="api-case-proposal",
    ),
    path(
        "case-proposals/<int:proposal>/store",
        drafting_calls.store_case_proposal,
        name="api-case-proposal-store",
    ),
    path(
        "case-proposals/<int:proposal>/stop",
        drafting_calls.stop_case_proposal,
        name="api-case-proposal-stop",
    ),
    path("runs", by_method(get=views.runs, post=run_calls.start_runs), name="api-runs"),
    path("runs/estimate", run_calls.estimate_runs, name="api-runs-estimate"),
    path("runs/judge-again", run_calls.judge_runs_again, name="api-runs-judge-again"),
    path(
        "runs/judge-again/estimate",
        run_calls.estimate_judging_again,
        name="api-runs-judge-again-estimate",
    ),
    path("runs/compare", views.compare_runs, name="api-compare"),
    path("runs/compare/many", views.compare_many, name="api-compare-many"),
    path("runs/compare/report", views.comparison_text, name="api-comparison-report"),
    path("runs/compare/cases.csv", views.comparison_table, name="api-comparison-table"),
    path("runs/compare/comparison.jsonl", views.comparison_lines, name="api-comparison-lines"),
    path("runs/compare/cases/<path:key>", views.compare_case, name="api-compare-case"),
    path("runs/<str:run>", views.run, name="api-run"),
    path("runs/<str:run>/report", views.run_report, name="api-run-report"),
    path("runs/<str:run>/measure-judge", run_calls.measure_run_judge, name="api-run-measure-judge"),
    path(
        "runs/<str:run>/measure-judge/estimate",
        run_calls.estimate_measuring,
        name="api-run-measure-judge-estimate",
    ),
    path("runs/<str:run>/stop", run_calls.stop, name="api-run-stop"),
    path("runs/<str:run>/resume", run_calls.resume, name="api-run-resume"),
    path("runs/<str:run>/retry", run_calls.retry, name="api-run-retry"),
    path("runs/<str:run>/outputs", run_calls.outputs, name="api-run-outputs"),
    path("runs/<str:run>/scores", run_calls.scores, name="api-run-scores"),
    path("runs/<str:run>/awaited", run_calls.awaited, name="api-run-awaited"),
    path("runs/<str:run>/close", run_calls.close, name="api-run-close"),
    path("runs/<str:run>/results", views.run_results, name="api-run-results"),
    path("runs/<str:run>/results.jsonl", views.run_results_file, name="api-run-results-file"),
    path("runs/<str:run>/junit.xml", views.run_junit, name="api-run-junit"),
    path("runs/<str:run>/results.csv", views.run_results_table, name="api-run-results-table"),
    path("runs/<str:run>/cases.jsonl", views.run_cases_file, name="api-run-cases-file"),
    path("results/<int:result>", views.result, name="api-result"),
    path(
        "results/<int:result>/attempt", run_calls.choose_result_attempt, name="api-result-attempt"
    ),
    path("results/<int:result>/output", views.result_output, name="api-result-output"),
    path(
        "targets",
        by_method(get=target_calls.targets, post=target_calls.add_target),
        name="api-targets",
    ),
    path(
        "targets/<int:target>",
        by_method(get=target_calls.target, put=target_calls.put_target),
        name="api-target",
    ),
    path(
        "models",
        by_method(get=model_calls.models, post=model_calls.add_model),
        name="api-models",
    ),
    path(
        "models/<slug:slug>",
        by_method(
            get=model_calls.model, put=model_calls.put_model, delete=model_calls.delete_model
        ),
        name="api-model",
    ),
    path("results/<int:result>/review", review_calls.review, name="api-result-review"),
    path("results/<int:result>/review/ask", review_calls.ask, name="api-result-review-ask"),
    path("reviews", review_calls.waiting, name="api-reviews"),
    path(
        "shares",
        by_method(get=share_calls.shares, post=share_calls.make),
        name="api-shares",
    ),
    path("shares/<int:share>", share_calls.revoke, name="api-share"),
    path("campaigns", views.campaigns, name="api-campaigns"),
    path("campaigns/<int:campaign>", views.campaign, name="api-campaign"),
    path("comments", views.comments, name="api-comments"),
    path("reviews.jsonl", views.reviews_lines, name="api-reviews-lines"),
    path("reviews.csv", views.reviews_table, name="api-reviews-table"),
    path(
        "exports/<uuid:export>",
        by_method(get=views.export, delete=views.export_cancel),
        name="api-export",
    ),
    path("exports/<uuid:export>/file", views.export_file, name="api-export-file"),
    path("<path:rest>", views.nothing_here, name="api-nothing"),
]
