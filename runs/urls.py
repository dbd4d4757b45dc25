"""The URLs of suites, runs and results."""

from __future__ import annotations

from django.urls import include, path, register_converter

from runs.api.trace_calls import TraceReceiver
from runs.audit import views as audit
from runs.bulk import views as bulk
from runs.campaigns import views as campaigns
from runs.cases import views as cases
from runs.charts import views as charts
from runs.comments import views as comments
from runs.compare import views as compare
from runs.drafting import views as drafting
from runs.evaluator_trials import views as evaluator_trials
from runs.exports import views as exports
from runs.files import views as files
from runs.filters import views as filters
from runs.home import views as home
from runs.lists import CaseKeyConverter
from runs.results import views as results
from runs.retention import views as retention
from runs.reviews import views as reviews
from runs.reviews.alignment import views as alignment
from runs.running import views as running
from runs.saved_views import views as saved_views
from runs.sharing import views as sharing
from runs.suites import views as suites
from runs.targets import views as targets
from runs.traces import views as traces
from runs.what_if import views as what_if
from runs.workers import views as workers

register_converter(CaseKeyConverter, "case_key")

RUN = "suites/<slug:slug>/runs/<int:number>/"
RESULT = f"{RUN}<case_key:key>/<int:repetition>/"

ALIGNMENT = "suites/<slug:slug>/agreement/align/<int:pk>/"

app_name = "runs"
urlpatterns = [
    path("api/", include("runs.api.urls")),
    path("v1/traces", TraceReceiver.as_view(), name="api-traces"),
    path("import/", cases.suite_import, name="suite-import"),
    path("import/sample/", files.suite_sample, name="suite-sample"),
    path("import/results/", files.results_import, name="results-import"),
    path("review/import/", reviews.review_import, name="review-import"),
    path("review/import/<uuid:pk>/", reviews.review_upload, name="review-upload"),
    path("review/export.jsonl", reviews.review_export, name="review-export"),
    path("review/export.csv", reviews.review_export_table, name="review-export-table"),
    path("import/done/", cases.suite_imported, name="suite-imported"),
    path("dashboard/", home.dashboard, name="dashboard"),
    path("suite-rows/", home.suite_rows, name="suite-rows"),
    path("filters/", filters.filter_help, name="filter-help"),
    path("new-suite/", suites.suite_new, name="suite-new"),
    path("new-suite/from-table/", cases.suite_new_from_table, name="suite-new-from-table"),
    path("suites/<slug:slug>/", home.suite, name="suite"),
    path("suites/<slug:slug>/settings/", suites.suite_settings, name="suite-settings"),
    path("suites/<slug:slug>/archive/", suites.suite_archive, name="suite-archive"),
    path("suites/<slug:slug>/delete/", retention.suite_delete, name="suite-delete"),
    path("suites/<slug:slug>/retention/", retention.suite_retention, name="suite-retention"),
    path("suites/<slug:slug>/disk-use/", retention.suite_disk_use, name="suite-disk-use"),
    path("suites/<slug:slug>/evaluators/", suites.suite_evaluators, name="suite-evaluators"),
    path(
        "suites/<slug:slug>/evaluators/keep/",
        suites.evaluators_keep,
        name="evaluators-keep",
    ),
    path(
        "suites/<slug:slug>/evaluators/add/",
        suites.evaluator_kinds,
        name="evaluator-kinds",
    ),
    path(
        "suites/<slug:slug>/evaluators/add/<slug:kind>/",
        suites.evaluator_add,
        name="evaluator-add",
    ),
    path("suites/<slug:slug>/evaluators/<slug:node>/", suites.evaluator, name="evaluator"),
    path(
        "suites/<slug:slug>/evaluators/<slug:node>/try/",
        evaluator_trials.evaluator_try,
        name="evaluator-try",
    ),
    path(
        "suites/<slug:slug>/evaluators/<slug:node>/try/<int:pk>/",
        evaluator_trials.evaluator_trial,
        name="evaluator-trial",
    ),
    path("suites/<slug:slug>/what-if/", what_if.what_if, name="what-if"),
    path("suites/<slug:slug>/what-if/flips.csv", what_if.what_if_file, name="what-if-file"),
    path(
        "suites/<slug:slug>/what-if/matrix.csv",
        what_if.what_if_matrix_file,
        name="what-if-matrix-file",
    ),
    path(
        "suites/<slug:slug>/what-if/scores.csv",
        what_if.what_if_histogram_file,
        name="what-if-histogram-file",
    ),
    path("suites/<slug:slug>/what-if/score/", what_if.what_if_score, name="what-if-score"),
    path("suites/<slug:slug>/draft/save/", suites.draft_save, name="draft-save"),
    path("suites/<slug:slug>/draft/discard/", suites.draft_discard, name="draft-discard"),
    path("suites/<slug:slug>/draft/problems/", suites.draft_problems, name="draft-problems"),
    path("suites/<slug:slug>/draft/conflict/", suites.draft_conflict, name="draft-conflict"),
    path("suites/<slug:slug>/file/", files.suite_file, name="suite-file"),
    path("suites/<slug:slug>/file/<int:version>/", files.suite_file, name="suite-file"),
    path("suites/<slug:slug>/versions/", suites.version_rows, name="suite-versions"),
    path("suites/<slug:slug>/versions/compare/", suites.version_compare, name="version-compare"),
    path("suites/<slug:slug>/versions/<int:number>/", suites.version, name="version"),
    path(
        "suites/<slug:slug>/versions/<int:number>/restore/",
        suites.version_restore,
        name="version-restore",
    ),
    path("suites/<slug:slug>/case-import/", cases.case_import, name="case-import"),
    path("case-tables/<uuid:pk>/", cases.case_table, name="case-table"),
    path("case-tables/<uuid:pk>/store/", cases.case_table_store, name="case-table-store"),
    path(
        "case-tables/<uuid:pk>/rejected.csv",
        cases.case_table_rejected,
        name="case-table-rejected",
    ),
    path("suites/<slug:slug>/draft-cases/", drafting.case_drafting, name="case-drafting"),
    path("case-proposals/<int:pk>/", drafting.case_proposal, name="case-proposal"),
    path(
        "case-proposals/<int:pk>/state/", drafting.case_proposal_state, name="case-proposal-state"
    ),
    path(
        "case-proposals/<int:pk>/store/", drafting.case_proposal_store, name="case-proposal-store"
    ),
    path("case-proposals/<int:pk>/stop/", drafting.case_proposal_stop, name="case-proposal-stop"),
    path(
        "case-proposals/<int:pk>/discard/",
        drafting.case_proposal_discard,
        name="case-proposal-discard",
    ),
    path("suites/<slug:slug>/views/", saved_views.suite_views, name="suite-views"),
    path("suites/<slug:slug>/views/<int:pk>/", saved_views.saved_view, name="saved-view"),
    path(
        "suites/<slug:slug>/views/<int:pk>/edit/",
        saved_views.saved_view_edit,
        name="saved-view-edit",
    ),
    path(
        "suites/<slug:slug>/views/<int:pk>/update/",
        saved_views.saved_view_update,
        name="saved-view-update",
    ),
    path(
        "suites/<slug:slug>/views/<int:pk>/delete/",
        saved_views.saved_view_delete,
        name="saved-view-delete",
    ),
    path("suites/<slug:slug>/cases/", cases.suite_cases, name="suite-cases"),
    path("suites/<slug:slug>/case-rows/", cases.case_rows, name="case-rows"),
    path("suites/<slug:slug>/case-suggestions/", cases.case_suggestions, name="case-suggestions"),
    path("suites/<slug:slug>/case-bulk/", cases.case_bulk, name="case-bulk"),
    path("suites/<slug:slug>/case-suite/", bulk.case_suite, name="case-suite"),
    path("suites/<slug:slug>/case-export/", cases.case_export, name="case-export"),
    path("suites/<slug:slug>/cases/new/", cases.case_new, name="case-new"),
    path("suites/<slug:slug>/cases/<case_key:key>/", cases.case, name="case"),
    path("suites/<slug:slug>/cases/<case_key:key>/edit/", cases.case_edit, name="case-edit"),
    path("suites/<slug:slug>/cases/<case_key:key>/delete/", cases.case_delete, name="case-delete"),
    path(
        "suites/<slug:slug>/cases/<case_key:key>/restore/", cases.case_restore, name="case-restore"
    ),
    path(
        "suites/<slug:slug>/cases/<case_key:key>/comments/",
        comments.case_comments,
        name="case-comments",
    ),
    path("suites/<slug:slug>/agreement/", reviews.suite_agreement, name="suite-agreement"),
    path("suites/<slug:slug>/agreement.csv", reviews.agreement_file, name="agreement-file"),
    path("suites/<slug:slug>/agreement/people/", reviews.people_agreement, name="people-agreement"),
    path("suites/<slug:slug>/agreement-people.csv", reviews.people_file, name="people-file"),
    path("suites/<slug:slug>/agreement/align/", alignment.alignments, name="alignments"),
    path(ALIGNMENT, alignment.alignment, name="alignment"),
    path(f"{ALIGNMENT}stop/", alignment.alignment_stop, name="alignment-stop"),
    path(f"{ALIGNMENT}resume/", alignment.alignment_resume, name="alignment-resume"),
    path(f"{ALIGNMENT}take/", alignment.alignment_take, name="alignment-take"),
    path("suites/<slug:slug>/agreement/judges/", reviews.judges, name="judges"),
    path("suites/<slug:slug>/agreement-judges.csv", reviews.judges_file, name="judges-file"),
    path("suites/<slug:slug>/agreement/bands/", reviews.agreement_bands, name="agreement-bands"),
    path("suites/<slug:slug>/charts/", charts.suite_charts, name="suite-charts"),
    path("suites/<slug:slug>/charts/panels/", charts.chart_panels, name="chart-panels"),
    path("suites/<slug:slug>/charts/breakdown/", charts.suite_breakdown, name="suite-breakdown"),
    path(
        "suites/<slug:slug>/charts/score-cost.csv", charts.score_cost_file, name="score-cost-file"
    ),
    path("suites/<slug:slug>/charts/trend.csv", charts.suite_trend_file, name="suite-trend-file"),
    path("suites/<slug:slug>/pictures/<slug:name>/", charts.suite_picture, name="suite-picture"),
    path(
        "suites/<slug:slug>/pictures/<slug:name>.csv",
        charts.suite_picture_file,
        name="suite-picture-file",
    ),
    path("suites/<slug:slug>/runs/new/", running.run_new, name="run-new"),
    path("suites/<slug:slug>/runs/new/estimate/", running.run_estimate, name="run-estimate"),
    path("suites/<slug:slug>/runs/new/cases/", running.run_cases, name="run-cases"),
    path("runs/new/", running.run_start_any, name="run-start-any"),
    path("runs/judge-again/", running.runs_judge_again, name="runs-judge-again"),
    path("compare/", compare.compare, name="compare"),
    path("compare/breakdown/", compare.compare_breakdown, name="compare-breakdown"),
    path("compare/display/", compare.compare_display, name="compare-display"),
    path("compare/many/", compare.compare_many, name="compare-many"),
    path("compare/many/cases.csv", compare.many_table, name="many-table"),
    path("compare/score/", compare.compare_score, name="compare-score"),
    path("compare/step/", compare.compare_step, name="compare-step"),
    path("compare/case/", compare.compare_case, name="compare-case"),
    path("compare/cases.csv", compare.comparison_table, name="comparison-table"),
    path("compare/comparison.jsonl", compare.comparison_lines, name="comparison-lines"),
    path("compare/comments/", comments.compare_comments, name="compare-comments"),
    path("compare/pictures/<slug:name>/", charts.comparison_picture, name="comparison-picture"),
    path(
        "compare/pictures/<slug:name>.csv",
        charts.comparison_picture_file,
        name="comparison-picture-file",
    ),
    path("compare/heat-map/", charts.comparison_heat_map, name="comparison-heat-map"),
    path("compare/heat-map.csv", charts.comparison_heat_map_file, name="comparison-heat-map-file"),
    path("runs/", results.run_list, name="run-list"),
    path("runs/rows/", results.run_rows, name="run-rows"),
    path(RUN, results.run, name="run"),
    path(f"{RUN}head/", results.run_head, name="run-head"),
    path(f"{RUN}live/", results.run_live, name="run-live"),
    path(f"{RUN}evaluators/", results.run_evaluators, name="run-evaluators"),
    path(f"{RUN}results/", results.run_results, name="run-results"),
    path(f"{RUN}comments/", comments.run_comments, name="run-comments"),
    path(f"{RUN}table.csv", results.run_displayed_table, name="run-displayed-table"),
    path(f"{RUN}display/", results.run_display, name="run-display"),
    path(f"{RUN}breakdown/", results.run_breakdown, name="run-breakdown"),
    path(f"{RUN}heat-map/", charts.run_heat_map, name="run-heat-map"),
    path(f"{RUN}heat-map.csv", charts.run_heat_map_file, name="run-heat-map-file"),
    path(f"{RUN}pictures/<slug:name>/", charts.run_picture, name="run-picture"),
    path(f"{RUN}pictures/<slug:name>.csv", charts.run_picture_file, name="run-picture-file"),
    path(f"{RUN}filter/", filters.filter_suggestions, name="filter-suggestions"),
    path(f"{RUN}summary.json", results.run_summary_file, name="run-summary-file"),
    path(f"{RUN}cases.jsonl", results.run_cases_file, name="run-cases-file"),
    path(f"{RUN}results.jsonl", results.run_results_file, name="run-results-file"),
    path(f"{RUN}junit.xml", results.run_junit, name="run-junit"),
    path(f"{RUN}results.csv", results.run_results_table, name="run-results-table"),
    path(f"{RUN}baseline/", results.run_baseline, name="run-baseline"),
    path(f"{RUN}delete/", retention.run_delete, name="run-delete"),
    path(f"{RUN}stop/", running.run_stop, name="run-stop"),
    path(f"{RUN}close/", running.run_close, name="run-close"),
    path(f"{RUN}resume/", results.run_resume, name="run-resume"),
    path(f"{RUN}retry/", running.run_retry, name="run-retry"),
    path(f"{RUN}judge-again/", running.run_judge_again, name="run-judge-again"),
    path(f"{RUN}measure-judge/", running.run_measure_judge, name="run-measure-judge"),
    path(f"{RUN}start-chosen/", running.run_chosen, name="run-chosen"),
    path(f"{RUN}retry/ask/", running.run_retry_ask, name="run-retry-ask"),
    path(f"{RUN}selected/review/", bulk.run_reviews, name="run-reviews"),
    path(f"{RUN}selected/tags/", bulk.run_tags, name="run-tags"),
    path(f"{RUN}selected/draft/", drafting.run_draft_cases, name="run-draft-cases"),
    path(f"{RUN}selected/suite/", bulk.run_suite, name="run-suite"),
    path(f"{RUN}selected/file/", bulk.run_selected_file, name="run-selected-file"),
    path(RESULT, results.result, name="result"),
    path(f"{RESULT}calls/", results.result_calls, name="result-calls"),
    path(f"{RESULT}calls/<int:pk>/", results.result_call, name="result-call"),
    path(f"{RESULT}output/", results.result_output, name="result-output"),
    path(f"{RESULT}files/<path:file>", results.result_file, name="result-file"),
    path(f"{RESULT}progress/", results.result_progress, name="result-progress"),
    path(f"{RESULT}retry/", running.result_retry, name="result-retry"),
    path(f"{RESULT}attempt/", running.result_attempt, name="result-attempt"),
    path(f"{RESULT}review/", reviews.result_review, name="result-review"),
    path(f"{RESULT}comments/", comments.result_comments, name="result-comments"),
    path(f"{RESULT}case/", cases.result_case, name="result-case"),
    path(f"{RESULT}expected/", cases.result_expected, name="result-expected"),
    path(f"{RESULT}outcome/", cases.result_outcome, name="result-outcome"),
    path("campaigns/", campaigns.campaign_list, name="campaign-list"),
    path("campaigns/<int:pk>/", campaigns.campaign, name="campaign"),
    path("campaigns/<int:pk>/head/", campaigns.campaign_head, name="campaign-head"),
    path("campaigns/<int:pk>/live/", campaigns.campaign_live, name="campaign-live"),
    path("campaigns/<int:pk>/chart/", campaigns.campaign_chart, name="campaign-chart"),
    path("campaigns/<int:pk>/cases/", campaigns.campaign_cases, name="campaign-cases"),
    path("campaigns/<int:pk>/stop/", campaigns.campaign_stop, name="campaign-stop"),
    path("campaigns/<int:pk>/delete/", retention.campaign_delete, name="campaign-delete"),
    path("campaigns/<int:pk>/name/", campaigns.campaign_name, name="campaign-name"),
    path("campaigns/<int:pk>/leaderboard.csv", campaigns.campaign_file, name="campaign-file"),
    path("campaigns/<int:pk>/leaderboard.json", campaigns.campaign_json, name="campaign-json"),
    path(
        "campaigns/<int:pk>/score-cost.csv", campaigns.campaign_cost_file, name="campaign-cost-file"
    ),
    path("targets/", targets.target_list, name="target-list"),
    path("targets/new/", targets.target_new, name="target-new"),
    path("targets/<int:pk>/", targets.target, name="target"),
    path("targets/new/try/", targets.target_new_try, name="target-new-try"),
    path("targets/try-cases/", targets.target_try_cases, name="target-try-cases"),
    path("targets/tries/<int:pk>/", targets.target_trial, name="target-trial"),
    path(
        "targets/<int:pk>/outputs/delete/",
        retention.target_outputs_delete,
        name="target-outputs-delete",
    ),
    path("targets/<int:pk>/edit/", targets.target_edit, name="target-edit"),
    path("targets/<int:pk>/edit/try/", targets.target_edit_try, name="target-edit-try"),
    path("targets/<int:pk>/try/", targets.target_try, name="target-try"),
    path("traces/", traces.traces, name="traces"),
    path("traces/rows/", traces.trace_rows, name="trace-rows"),
    path("traces/use/", traces.trace_use, name="trace-use"),
    path("traces/<int:pk>/", traces.trace, name="trace"),
    path("workers/", workers.workers, name="workers"),
    path("workers/live/", workers.workers_live, name="workers-live"),
    path("review/", reviews.review, name="review"),
    path("review/undo/", reviews.review_undo, name="review-undo"),
    path("review/assign/", reviews.review_assign, name="review-assign"),
    path("review/judge/", reviews.review_judge, name="review-judge"),
    path("review/<int:pk>/", reviews.review_item, name="review-item"),
    path("review/<int:pk>/decide/", reviews.review_decide, name="review-decide"),
    path("review/<int:pk>/skip/", reviews.review_skip, name="review-skip"),
    path("review/<int:pk>/release/", reviews.review_release, name="review-release"),
    path("review/<int:pk>/hold/", reviews.review_hold, name="review-hold"),
    path("palette/", home.palette, name="palette"),
    path("comments/members/", comments.comment_members, name="comment-members"),
    path("comments/<int:pk>/", comments.comment, name="comment"),
    path("comments/<int:pk>/edit/", comments.comment_edit, name="comment-edit"),
    path("comments/<int:pk>/delete/", comments.comment_delete, name="comment-delete"),
    path("comments/<int:pk>/resolve/", comments.comment_resolve, name="comment-resolve"),
    path("mentions/", comments.mentions, name="mentions"),
    path("mentions/read/", comments.mentions_read, name="mentions-read"),
    path("recent-suites/", home.recent_suites, name="recent-suites"),
    path("audit/", audit.audit, name="audit"),
    path("audit/audit.jsonl", audit.audit_file, name="audit-file"),
    path("exports/", exports.exports, name="exports"),
    path("exports/rows/", exports.export_rows, name="export-rows"),
    path("exports/<uuid:pk>/", exports.export, name="export"),
    path("exports/<uuid:pk>/state/", exports.export_state, name="export-state"),
    path("exports/<uuid:pk>/file/", exports.export_file, name="export-file"),
    path("exports/<uuid:pk>/cancel/", exports.export_cancel, name="export-cancel"),
    path("exports/<uuid:pk>/retry/", exports.export_retry, name="export-retry"),
    path("retention/", retention.retention, name="retention"),
    path("retention/rule/", retention.retention_rule, name="retention-rule"),
    path("retention/removals/", retention.removals, name="removals"),
    path("retention/removals/<int:pk>/retry/", retention.removal_retry, name="removal-retry"),
    path("search/", home.search, name="search"),
    path("search/suggestions/", home.search_suggestions, name="search-suggestions"),
    path("shares/", sharing.share_links, name="share-list"),
    path("shares/new/", sharing.share_new, name="share-new"),
    path("shares/preview/", sharing.share_preview_part, name="share-preview"),
    path("shares/<int:pk>/revoke/", sharing.share_revoke, name="share-revoke"),
    path("s/<str:token>/", sharing.shared, name="shared"),
    path("s/<str:token>/download", sharing.shared_file, name="shared-file"),
]
