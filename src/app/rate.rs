//! Rate limits per tenant. Each tenant has its own token bucket, so that one tenant's load does not limit another.

use std::collections::HashMap;

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};

use super::{auth::SINGLE_TENANT, problem::Problem};
use crate::config::{Auth, Config, Rate};

/// The rate limiters of tenants that have a limit.
pub struct Rates<C: Clock = DefaultClock> {
    clock: C,
    limits: HashMap<String, Limit<C>>,
}

struct Limit<C: Clock> {
    rate: Rate,
    limiter: RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>,
}

impl Rates {
    pub fn new(config: &Config) -> Self {
        let single = (config.auth == Auth::Open).then_some((SINGLE_TENANT, config.limits.requests));
        let tenants = config.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant.requests));
        Self::with_clock(tenants.chain(single), DefaultClock::default())
    }
}

impl<C: Clock + Clone> Rates<C> {
    fn with_clock<'a>(tenants: impl Iterator<Item = (&'a str, Option<Rate>)>, clock: C) -> Self {
        let limited = tenants.filter_map(|(name, rate)| {
            let (rate, quota) = rate.and_then(|rate| Some((rate, quota(rate)?)))?;
            let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
            Some((name.to_owned(), Limit { rate, limiter }))
        });
        Self { limits: limited.collect(), clock }
    }

    /// Counts one request of a tenant. Above the limit the problem names the seconds to wait.
    pub fn take(&self, tenant: &str) -> Result<(), Problem> {
        let Some(Limit { rate, limiter }) = self.limits.get(tenant) else { return Ok(()) };
        limiter.check().map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            // Whole seconds, rounded up: a client that waits for this long is admitted.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            Problem::too_many_requests(*rate, u32::try_from(seconds.max(1)).unwrap_or(u32::MAX))
        })
    }
}

/// `None` if the interval between requests rounds to 0 ns; the configuration refuses such rates.
fn quota(rate: Rate) -> Option<Quota> {
    Some(Quota::with_period(rate.per / rate.count.get())?.allow_burst(rate.count))
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use governor::clock::FakeRelativeClock;

    use super::*;

    fn rate(count: u32, seconds: u64) -> Option<Rate> {
        Some(Rate { count: NonZeroU32::new(count).unwrap(), per: Duration::from_secs(seconds) })
    }

    /// Takes one request; returns the seconds to wait if it is refused.
    fn refused(rates: &Rates<FakeRelativeClock>, tenant: &str) -> Option<u64> {
        let response = rates.take(tenant).err()?.response();
        assert_eq!(response.status(), 429);
        Some(response.headers()["retry-after"].to_str().unwrap().parse().unwrap())
    }

    #[test]
    fn burst_is_admitted_and_tokens_return_evenly() {
        let clock = FakeRelativeClock::default();
        let rates = Rates::with_clock([("a", rate(600, 60))].into_iter(), clock.clone());
        assert!((0..600).all(|_| refused(&rates, "a").is_none()), "at the limit");
        assert_eq!(refused(&rates, "a"), Some(1), "over it: the wait is never 0 s");
        clock.advance(Duration::from_millis(99));
        assert_eq!(refused(&rates, "a"), Some(1), "a refusal costs nothing");
        clock.advance(Duration::from_millis(1));
        assert_eq!(refused(&rates, "a"), None, "ten a second");
        assert!(refused(&rates, "a").is_some());
        clock.advance(Duration::from_secs(10));
        assert_eq!((0..200).filter(|_| refused(&rates, "a").is_none()).count(), 100);
        clock.advance(Duration::from_secs(3600));
        assert_eq!((0..1200).filter(|_| refused(&rates, "a").is_none()).count(), 600, "a burst is capped at the limit");
    }

    #[test]
    fn request_after_retry_after_is_admitted() {
        for (count, seconds) in [(1, 1), (40, 60), (7, 60), (1, 3600), (3, 86_400), (1000, 1)] {
            let clock = FakeRelativeClock::default();
            let rates = Rates::with_clock([("a", rate(count, seconds))].into_iter(), clock.clone());
            for offset in [0, 1, 333, 999] {
                while refused(&rates, "a").is_none() {}
                clock.advance(Duration::from_millis(offset));
                let Some(wait) = refused(&rates, "a") else { continue };
                assert!(wait <= 1.max((seconds / u64::from(count)) + 1), "{count}/{seconds}: {wait}");
                clock.advance(Duration::from_secs(wait));
                assert_eq!(refused(&rates, "a"), None, "{count} in {seconds} s, {offset} ms later");
            }
        }
    }

    #[test]
    fn limits_of_tenants_are_separate() {
        let tenants = [("a", rate(1, 60)), ("b", rate(2, 60)), ("c", None)];
        let rates = Rates::with_clock(tenants.into_iter(), FakeRelativeClock::default());
        let passed = |tenant| (0..9).filter(|_| refused(&rates, tenant).is_none()).count();
        assert_eq!(["a", "b", "c", "unknown"].map(passed), [1, 2, 9, 9]);
    }
}
