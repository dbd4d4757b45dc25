"""Where the pages of suites, runs and results live."""

from __future__ import annotations

from urllib.parse import unquote

from django.urls import include, path, register_converter

from runs.views import (
    agreement,
    audit,
    baselines,
    campaigns,
    case_bulk,
    case_tables,
    cases,
    charts,
    comparing,
    comparison_files,
    drafts,
    evaluators,
    going_on,
    importing,
    importing_results,
    rail,
    results,
    review_files,
    reviewing,
    runs,
    search,
    shared,
    sharing,
    starting,
    suite_setup,
    suites,
    targets,
    trying,
    trying_evaluators,
    versions,
    what_if,
    workers,
)


class CaseKeyConverter:
    """Keep a case's key one part of an address, whatever characters it is made of.

    Slashes and dots alone would be read as steps in the address, by browsers and proxies alike.
    """

    regex = "[^/]+"
    # What stands in these places of addresses already.
    taken = ("new",)

    def to_python(self, value: str) -> str:
        """Return the key of an address part."""
        return unquote(value)

    def to_url(self, value: str) -> str:
        """Return the address part of a key."""
        escaped = value.replace("%", "%25").replace("/", "%2F")
        if escaped in self.taken:
            return f"%{ord(escaped[0]):X}{escaped[1:]}"
        return escaped.replace(".", "%2E") if not escaped.strip(".") else escaped


register_converter(CaseKeyConverter, "case_key")

RUN = "suites/<slug:slug>/runs/<int:number>/"
RESULT = f"{RUN}<case_key:key>/<int:repetition>/"

app_name = "runs"
urlpatterns = [
    path("api/", include("runs.api.urls")),
    path("import/", importing.suite_import, name="suite-import"),
    path("import/results/", importing_results.results_import, name="results-import"),
    path("review/import/", review_files.review_import, name="review-import"),
    path("review/import/<uuid:pk>/", review_files.review_upload, name="review-upload"),
    path("review/export.jsonl", review_files.review_export, name="review-export"),
    path("review/export.csv", review_files.review_export_table, name="review-export-table"),
    path("import/done/", importing.suite_imported, name="suite-imported"),
    path("today/", suites.today, name="today"),
    path("suite-rows/", suites.suite_rows, name="suite-rows"),
    path("suites/new/", suite_setup.suite_new, name="suite-new"),
    path("suites/new/from-table/", case_tables.suite_new_from_table, name="suite-new-from-table"),
    path("suites/<slug:slug>/", suites.suite, name="suite"),
    path("suites/<slug:slug>/settings/", suite_setup.suite_settings, name="suite-settings"),
    path("suites/<slug:slug>/archive/", suite_setup.suite_archive, name="suite-archive"),
    path("suites/<slug:slug>/delete/", suite_setup.suite_delete, name="suite-delete"),
    path("suites/<slug:slug>/evaluators/", evaluators.suite_evaluators, name="suite-evaluators"),
    path("suites/<slug:slug>/evaluators/keep/", evaluators.evaluators_keep, name="evaluators-keep"),
    path("suites/<slug:slug>/evaluators/add/", evaluators.evaluator_kinds, name="evaluator-kinds"),
    path(
        "suites/<slug:slug>/evaluators/add/<slug:kind>/",
        evaluators.evaluator_add,
        name="evaluator-add",
    ),
    path("suites/<slug:slug>/evaluators/<slug:node>/", evaluators.evaluator, name="evaluator"),
    path(
        "suites/<slug:slug>/evaluators/<slug:node>/try/",
        trying_evaluators.evaluator_try,
        name="evaluator-try",
    ),
    path(
        "suites/<slug:slug>/evaluators/<slug:node>/try/<int:pk>/",
        trying_evaluators.evaluator_trial,
        name="evaluator-trial",
    ),
    path("suites/<slug:slug>/what-if/", what_if.what_if, name="what-if"),
    path("suites/<slug:slug>/what-if/flips.csv", what_if.what_if_file, name="what-if-file"),
    path("suites/<slug:slug>/what-if/score/", what_if.what_if_score, name="what-if-score"),
    path("suites/<slug:slug>/draft/save/", drafts.draft_save, name="draft-save"),
    path("suites/<slug:slug>/draft/discard/", drafts.draft_discard, name="draft-discard"),
    path("suites/<slug:slug>/draft/conflict/", drafts.draft_conflict, name="draft-conflict"),
    path("suites/<slug:slug>/file/", importing.suite_file, name="suite-file"),
    path("suites/<slug:slug>/file/<int:version>/", importing.suite_file, name="suite-file"),
    path("suites/<slug:slug>/versions/", versions.version_rows, name="suite-versions"),
    path("suites/<slug:slug>/versions/compare/", versions.version_compare, name="version-compare"),
    path("suites/<slug:slug>/versions/<int:number>/", versions.version, name="version"),
    path(
        "suites/<slug:slug>/versions/<int:number>/restore/",
        versions.version_restore,
        name="version-restore",
    ),
    path("suites/<slug:slug>/case-import/", case_tables.case_import, name="case-import"),
    path("case-tables/<uuid:pk>/", case_tables.case_table, name="case-table"),
    path("case-tables/<uuid:pk>/store/", case_tables.case_table_store, name="case-table-store"),
    path(
        "case-tables/<uuid:pk>/rejected.csv",
        case_tables.case_table_rejected,
        name="case-table-rejected",
    ),
    path("suites/<slug:slug>/cases/", suites.suite_cases, name="suite-cases"),
    path("suites/<slug:slug>/case-rows/", suites.case_rows, name="case-rows"),
    path("suites/<slug:slug>/case-bulk/", case_bulk.case_bulk, name="case-bulk"),
    path("suites/<slug:slug>/case-export/", case_bulk.case_export, name="case-export"),
    path("suites/<slug:slug>/cases/new/", cases.case_new, name="case-new"),
    path("suites/<slug:slug>/cases/<case_key:key>/", suites.case, name="case"),
    path("suites/<slug:slug>/cases/<case_key:key>/edit/", cases.case_edit, name="case-edit"),
    path("suites/<slug:slug>/cases/<case_key:key>/delete/", cases.case_delete, name="case-delete"),
    path(
        "suites/<slug:slug>/cases/<case_key:key>/restore/", cases.case_restore, name="case-restore"
    ),
    path("suites/<slug:slug>/agreement/", agreement.suite_agreement, name="suite-agreement"),
    path("suites/<slug:slug>/agreement/bands/", agreement.agreement_bands, name="agreement-bands"),
    path("suites/<slug:slug>/charts/", charts.suite_charts, name="suite-charts"),
    path("suites/<slug:slug>/charts/panels/", charts.chart_panels, name="chart-panels"),
    path(
        "suites/<slug:slug>/charts/score-cost.csv", charts.score_cost_file, name="score-cost-file"
    ),
    path("suites/<slug:slug>/charts/trend.csv", charts.suite_trend_file, name="suite-trend-file"),
    path("suites/<slug:slug>/runs/new/", starting.run_new, name="run-new"),
    path("suites/<slug:slug>/runs/new/estimate/", starting.run_estimate, name="run-estimate"),
    path("suites/<slug:slug>/runs/new/cases/", starting.run_cases, name="run-cases"),
    path("runs/new/", starting.run_start_any, name="run-start-any"),
    path("compare/", comparing.compare, name="compare"),
    path("compare/score/", comparing.compare_score, name="compare-score"),
    path("compare/case/", comparing.compare_case, name="compare-case"),
    path("compare/cases.csv", comparison_files.comparison_table, name="comparison-table"),
    path("compare/comparison.jsonl", comparison_files.comparison_lines, name="comparison-lines"),
    path("runs/", runs.run_list, name="run-list"),
    path("runs/rows/", runs.run_rows, name="run-rows"),
    path(RUN, runs.run, name="run"),
    path(f"{RUN}head/", runs.run_head, name="run-head"),
    path(f"{RUN}live/", runs.run_live, name="run-live"),
    path(f"{RUN}evaluators/", runs.run_evaluators, name="run-evaluators"),
    path(f"{RUN}results/", runs.run_results, name="run-results"),
    path(f"{RUN}summary.json", runs.run_summary_file, name="run-summary-file"),
    path(f"{RUN}results.jsonl", runs.run_results_file, name="run-results-file"),
    path(f"{RUN}results.csv", runs.run_results_table, name="run-results-table"),
    path(f"{RUN}baseline/", baselines.run_baseline, name="run-baseline"),
    path(f"{RUN}stop/", going_on.run_stop, name="run-stop"),
    path(f"{RUN}resume/", going_on.run_resume, name="run-resume"),
    path(f"{RUN}retry/", going_on.run_retry, name="run-retry"),
    path(f"{RUN}start-chosen/", starting.run_chosen, name="run-chosen"),
    path(f"{RUN}retry/ask/", going_on.run_retry_ask, name="run-retry-ask"),
    path(RESULT, results.result, name="result"),
    path(f"{RESULT}calls/", results.result_calls, name="result-calls"),
    path(f"{RESULT}calls/<int:pk>/", results.result_call, name="result-call"),
    path(f"{RESULT}output/", results.result_output, name="result-output"),
    path(f"{RESULT}files/<path:file>", results.result_file, name="result-file"),
    path(f"{RESULT}progress/", results.result_progress, name="result-progress"),
    path(f"{RESULT}retry/", going_on.result_retry, name="result-retry"),
    path(f"{RESULT}review/", reviewing.result_review, name="result-review"),
    path(f"{RESULT}case/", cases.result_case, name="result-case"),
    path(f"{RESULT}expected/", cases.result_expected, name="result-expected"),
    path("campaigns/", campaigns.campaign_list, name="campaign-list"),
    path("campaigns/<int:pk>/", campaigns.campaign, name="campaign"),
    path("campaigns/<int:pk>/head/", campaigns.campaign_head, name="campaign-head"),
    path("campaigns/<int:pk>/live/", campaigns.campaign_live, name="campaign-live"),
    path("campaigns/<int:pk>/chart/", campaigns.campaign_chart, name="campaign-chart"),
    path("campaigns/<int:pk>/cases/", campaigns.campaign_cases, name="campaign-cases"),
    path("campaigns/<int:pk>/stop/", campaigns.campaign_stop, name="campaign-stop"),
    path("campaigns/<int:pk>/name/", campaigns.campaign_name, name="campaign-name"),
    path("campaigns/<int:pk>/leaderboard.csv", campaigns.campaign_file, name="campaign-file"),
    path("campaigns/<int:pk>/leaderboard.json", campaigns.campaign_json, name="campaign-json"),
    path(
        "campaigns/<int:pk>/score-cost.csv", campaigns.campaign_cost_file, name="campaign-cost-file"
    ),
    path("targets/", targets.target_list, name="target-list"),
    path("targets/new/", targets.target_new, name="target-new"),
    path("targets/<int:pk>/", targets.target, name="target"),
    path("targets/new/try/", trying.target_new_try, name="target-new-try"),
    path("targets/try-cases/", trying.target_try_cases, name="target-try-cases"),
    path("targets/tries/<int:pk>/", trying.target_trial, name="target-trial"),
    path("targets/<int:pk>/edit/", targets.target_edit, name="target-edit"),
    path("targets/<int:pk>/edit/try/", trying.target_edit_try, name="target-edit-try"),
    path("targets/<int:pk>/try/", trying.target_try, name="target-try"),
    path("workers/", workers.workers, name="workers"),
    path("workers/live/", workers.workers_live, name="workers-live"),
    path("review/", reviewing.review, name="review"),
    path("review/undo/", reviewing.review_undo, name="review-undo"),
    path("review/assign/", reviewing.review_assign, name="review-assign"),
    path("review/judge/", reviewing.review_judge, name="review-judge"),
    path("review/<int:pk>/", reviewing.review_item, name="review-item"),
    path("review/<int:pk>/decide/", reviewing.review_decide, name="review-decide"),
    path("review/<int:pk>/skip/", reviewing.review_skip, name="review-skip"),
    path("review/<int:pk>/release/", reviewing.review_release, name="review-release"),
    path("review/<int:pk>/hold/", reviewing.review_hold, name="review-hold"),
    path("pinned/", rail.pinned, name="pinned"),
    path("audit/", audit.audit, name="audit"),
    path("audit/audit.jsonl", audit.audit_file, name="audit-file"),
    path("search/", search.search, name="search"),
    path("shares/", sharing.share_links, name="share-list"),
    path("shares/new/", sharing.share_new, name="share-new"),
    path("shares/preview/", sharing.share_preview_part, name="share-preview"),
    path("shares/<int:pk>/revoke/", sharing.share_revoke, name="share-revoke"),
    path("s/<str:token>/", shared.shared, name="shared"),
    path("s/<str:token>/download", shared.shared_file, name="shared-file"),
]
