//! `GET /stats`: sums of a tenant's records per day and provider, and the sites that are cited most.

use std::{ops::Range, sync::Arc};

use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    citations::{TenantName, parse_query, parse_time, plain_json, store_problem},
    openapi::only,
};
use crate::{
    app::{App, problem::Problem},
    citation::export::csv_row,
    store::{Counts, DayStats, STATS_DAYS_MAX, STATS_TOP_MAX, SiteStats, StatsFilter, StatsReport, day_of},
};

/// Length of the period if `since` is not given.
const DEFAULT_DAYS: i64 = 30;
/// Sites in JSON, by default and at most. Each is also listed per day.
const TOP: Range<usize> = 10..100;
/// Sites in CSV, by default and at most. CSV has no days.
const CSV_TOP: Range<usize> = 1000..STATS_TOP_MAX;

pub fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(only(routes!(stats)))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StatsParams {
    /// As in `/citations`; 30 days by default, 366 at most, whole days.
    since: Option<String>,
    until: Option<String>,
    provider: Option<String>,
    /// Lists this site only.
    domain: Option<String>,
    /// Sites listed: up to 100, and 10,000 as CSV.
    #[param(minimum = 1, maximum = 10000)]
    top: Option<usize>,
    /// CSV is the list of sites.
    #[param(pattern = "^(json|csv)$")]
    format: Option<String>,
}

/// What records add up to, and which sites answers rest on
#[utoipa::path(
    get, path = "/stats", tag = "citations", params(StatsParams),
    responses((status = 200, description = "The sums", content((StatsResponse = "application/json"), (String = "text/csv")))),
)]
async fn stats(
    State(app): State<Arc<App>>,
    Extension(TenantName(tenant)): Extension<TenantName>,
    query: Result<Query<StatsParams>, QueryRejection>,
) -> Result<Response, Problem> {
    let query = parse_query(query)?;
    let is_csv = match query.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => return Err(Problem::bad_request("format is one of json, csv")),
    };
    let bounds = if is_csv { CSV_TOP } else { TOP };
    let top = query.top.unwrap_or(bounds.start);
    if !(1..=bounds.end).contains(&top) {
        return Err(Problem::bad_request(format!("top is a number from 1 to {}", bounds.end)));
    }
    let now = Timestamp::now().as_millisecond();
    let (days, since, until) = period(query.since.as_deref(), query.until.as_deref(), now)?;
    let filter = StatsFilter { days, provider: query.provider, domain: query.domain, top, by_day: !is_csv };
    let report = app.store.stats(&tenant, &filter).await.map_err(store_problem)?;
    if is_csv {
        return Ok(csv(&report, since, until));
    }
    let body = serde_json::to_vec(&StatsResponse::new(report, since, until)).unwrap_or_default();
    Ok(plain_json(StatusCode::OK, body))
}

/// The period in whole days, because sums are kept per day: the first and the last day are included completely.
fn period(since: Option<&str>, until: Option<&str>, now_ms: i64) -> Result<(Range<i64>, Date, Date), Problem> {
    let end = match until {
        Some(text) => day_of(parse_time("until", text)?.saturating_sub(1)) + 1,
        None => day_of(now_ms) + 1,
    };
    let start = match since {
        Some(text) => day_of(parse_time("since", text)?),
        None => end - DEFAULT_DAYS,
    };
    if start >= end {
        return Err(Problem::bad_request("until has to be later than since"));
    }
    if end - start > STATS_DAYS_MAX {
        return Err(Problem::bad_request(format!("from since to until there are {STATS_DAYS_MAX} days at most")));
    }
    match (date(start), date(end)) {
        (Some(since), Some(until)) => Ok((start..end, since, until)),
        _ => Err(Problem::bad_request("there is no such day")),
    }
}

fn date(day: i64) -> Option<Date> {
    let instant = Timestamp::from_second(day.checked_mul(24 * 60 * 60)?).ok()?;
    Some(instant.to_zoned(TimeZone::UTC).date())
}

#[derive(Serialize, ToSchema)]
#[schema(as = StatsReport)]
struct StatsResponse {
    since: String,
    /// The day after the last one.
    until: String,
    totals: Sums,
    domains: Vec<DomainSums>,
    providers: Vec<ProviderSums>,
    days: Vec<DaySums>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ProviderSums)]
struct ProviderSums {
    provider: String,
    #[serde(flatten)]
    sum: Sums,
}

#[derive(Serialize, ToSchema)]
#[schema(as = DaySums)]
struct DaySums {
    day: String,
    provider: String,
    #[serde(flatten)]
    sum: Sums,
    domains: Vec<DomainSums>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sums)]
struct Sums {
    messages: i64,
    with_sources: i64,
    without_sources: i64,
    citations: i64,
    cited: i64,
    cited_share: Option<f64>,
    supplemental: i64,
    filtered: i64,
    failed: i64,
    duplicates: i64,
    dangling_markers: i64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DomainSums)]
struct DomainSums {
    domain: String,
    messages: i64,
    citations: i64,
    cited: i64,
    cited_share: Option<f64>,
}

impl StatsResponse {
    fn new(report: StatsReport, since: Date, until: Date) -> Self {
        let mut totals = Counts::default();
        let mut providers: Vec<(String, Counts)> = Vec::new();
        for DayStats { provider, counts, .. } in &report.days {
            totals.add(counts, 1);
            match providers.iter_mut().find(|(known, _)| known == provider) {
                Some((_, sum)) => sum.add(counts, 1),
                None => providers.push((provider.clone(), *counts)),
            }
        }
        providers.sort_by(|(one, _), (other, _)| one.cmp(other));
        let of_provider = |(provider, counts): (_, Counts)| ProviderSums { provider, sum: Sums::from(counts) };
        let day = |one: DayStats| {
            let domains = one.sites.into_iter().map(DomainSums::from).collect();
            Some(DaySums {
                day: date(one.day)?.to_string(),
                provider: one.provider,
                sum: Sums::from(one.counts),
                domains,
            })
        };
        Self {
            since: since.to_string(),
            until: until.to_string(),
            totals: Sums::from(totals),
            domains: report.sites.into_iter().map(DomainSums::from).collect(),
            providers: providers.into_iter().map(of_provider).collect(),
            days: report.days.into_iter().filter_map(day).collect(),
        }
    }
}

impl From<Counts> for Sums {
    fn from(counts: Counts) -> Self {
        Self {
            messages: counts.messages,
            with_sources: counts.with_sources,
            without_sources: counts.messages - counts.with_sources,
            citations: counts.citations,
            cited: counts.cited,
            cited_share: share(counts.cited, counts.citations),
            supplemental: counts.supplemental,
            filtered: counts.filtered,
            failed: counts.failed,
            duplicates: counts.duplicates,
            dangling_markers: counts.dangling_markers,
        }
    }
}

impl From<SiteStats> for DomainSums {
    fn from(SiteStats { domain, site }: SiteStats) -> Self {
        let cited_share = share(site.cited, site.citations);
        Self { domain, messages: site.messages, citations: site.citations, cited: site.cited, cited_share }
    }
}

/// A share with four decimals; `None` if the whole is 0.
fn share(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 10_000.0).round() / 10_000.0)
}

fn csv(report: &StatsReport, since: Date, until: Date) -> Response {
    let mut out = String::new();
    csv_row(&mut out, ["domain", "messages", "citations", "cited", "cited_share"]);
    for SiteStats { domain, site } in &report.sites {
        let share = share(site.cited, site.citations).map(|share| share.to_string()).unwrap_or_default();
        let [messages, citations, cited] = [site.messages, site.citations, site.cited].map(|count| count.to_string());
        csv_row(&mut out, [domain, &messages, &citations, &cited, &share]);
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_DISPOSITION, format!("inline; filename=\"sites-{since}-{until}.csv\"")),
    ];
    (headers, out).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe_period(since: &str, until: &str) -> Result<String, String> {
        let optional = |text: &'static str| (!text.is_empty()).then_some(text);
        let (since, until) = (since.to_owned().leak(), until.to_owned().leak());
        // 2026-03-01T00:00:00Z
        let period = period(optional(since), optional(until), 1_772_323_200_000);
        period
            .map(|(days, since, until)| format!("{since} {until} {}", days.end - days.start))
            .map_err(|problem| problem.detail().to_owned())
    }

    #[test]
    fn period_is_rounded_to_whole_days() {
        for (since, until, period) in [
            ("", "", "2026-01-31 2026-03-02 30"),
            ("2026-03-01", "", "2026-03-01 2026-03-02 1"),
            ("", "2026-02-28", "2026-01-29 2026-02-28 30"),
            ("2026-01-13T09:18:07Z", "2026-01-14T00:00:00Z", "2026-01-13 2026-01-14 1"),
            ("2026-01-13T09:18:07Z", "2026-01-14T00:00:00.001Z", "2026-01-13 2026-01-15 2"),
            ("2026-01-13T23:30:00-01:00", "2026-01-15", "2026-01-14 2026-01-15 1"),
            ("-1", "1", "1969-12-31 1970-01-02 2"),
            ("2024-02-29", "2025-03-01", "2024-02-29 2025-03-01 366"),
        ] {
            assert_eq!(describe_period(since, until).as_deref(), Ok(period), "{since} {until}");
        }
        for (since, until, why) in [
            ("2026-01-14", "2026-01-14", "later than since"),
            ("2026-03-02", "", "later than since"),
            ("2024-02-29", "2025-03-01T00:00:01Z", "366 days at most"),
            ("0", "", "366 days at most"),
            ("9223372036854775806", "9223372036854775807", "no such day"),
            ("-9223372036854775808", "-9223372036854775807", "no such day"),
            ("soon", "", "since is a time"),
        ] {
            let error = describe_period(since, until).unwrap_err();
            assert!(error.contains(why), "{since} {until}: {error}");
        }
    }
}
