//! Which calls are traced: what the operator's sampler chooses, and the callers if it follows them, within a bound.

use std::sync::Arc;

use opentelemetry::trace::{Link, SpanKind, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{
    IdGenerator as _, ParentBasedSampler, RandomIdGenerator, Sampler, SamplingDecision, SamplingResult,
    ShouldSample,
};

use super::budget::Budget;
use super::settings::Sampling;

/// Marks the parent of what another gateway of the instance asks for. That gateway has decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct FromGateway;

/// The sampler of a process. A span within a span of the same process is traced as that one is.
pub(super) fn sampler(sampling: &Sampling, budget: &Arc<Budget>) -> ParentBasedSampler {
    let bounded = |sampler: &Sampler| Bounded { sampler: sampler.clone(), budget: Arc::clone(budget) };
    let (asked, not_asked) = if sampling.follows_caller {
        (Sampler::AlwaysOn, Sampler::AlwaysOff)
    } else {
        (sampling.sampler.clone(), sampling.sampler.clone())
    };
    ParentBasedSampler::new(bounded(&sampling.sampler))
        .with_remote_parent_sampled(bounded(&asked))
        .with_remote_parent_not_sampled(bounded(&not_asked))
}

/// A sampler under a bound for what it chooses.
#[derive(Debug, Clone)]
struct Bounded {
    sampler: Sampler,
    budget: Arc<Budget>,
}

impl ShouldSample for Bounded {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let decided = parent.is_some_and(|parent| parent.get::<FromGateway>().is_some());
        let sampler = if decided { &Sampler::AlwaysOn } else { &self.sampler };
        // A share is decided by a trace id. A caller's may be made so that it is always within the share.
        let drawn = if decided { trace_id } else { RandomIdGenerator::default().new_trace_id() };
        let mut result = sampler.should_sample(parent, drawn, name, kind, attributes, links);
        if !decided && result.decision == SamplingDecision::RecordAndSample && !self.budget.take() {
            result.decision = SamplingDecision::Drop;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceState};
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    fn caller(asks: bool) -> Context {
        let flags = TraceFlags::default().with_sampled(asks);
        let parent = SpanContext::new(TraceId::from(1), SpanId::from(1), flags, true, TraceState::default());
        Context::new().with_remote_span_context(parent)
    }

    fn is_traced(sampler: &ParentBasedSampler, parent: &Context) -> bool {
        let result =
            sampler.should_sample(Some(parent), TraceId::from(1), "POST /", &SpanKind::Server, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    fn named(name: &str, per_second: u32) -> ParentBasedSampler {
        let sampling = Sampling::named(Some(name), None).unwrap();
        sampler(&sampling, &Arc::new(Budget::new(per_second, Counter::default())))
    }

    #[test]
    fn a_sampler_follows_the_caller_only_if_it_is_parent_based() {
        let none = Context::new();
        for (name, [by_itself, asked, not_asked]) in [
            ("always_on", [true, true, true]),
            ("always_off", [false, false, false]),
            ("parentbased_always_on", [true, true, false]),
            ("parentbased_always_off", [false, true, false]),
        ] {
            let sampler = named(name, 100);
            assert_eq!(is_traced(&sampler, &none), by_itself, "{name}");
            assert_eq!(is_traced(&sampler, &caller(true)), asked, "{name}");
            assert_eq!(is_traced(&sampler, &caller(false)), not_asked, "{name}");
        }
    }

    #[test]
    fn no_trace_id_of_a_caller_is_always_within_the_share() {
        let sampling = Sampling::named(Some("traceidratio"), Some("0.5")).unwrap();
        let sampler = sampler(&sampling, &Arc::new(Budget::new(10_000, Counter::default())));
        // By its lowest bytes it would be within any share.
        let traced = (0..1_000).filter(|_| is_traced(&sampler, &caller(true))).count();
        assert!((300..700).contains(&traced), "{traced}");
    }

    #[test]
    fn callers_who_ask_share_the_bound_and_other_gateways_do_not() {
        let sampler = named("parentbased_always_off", 2);
        let traced = (0..1_000).filter(|_| is_traced(&sampler, &caller(true))).count();
        // Two in each second; the loop is within one or two of them, or more on a slow machine.
        assert!((2..100).contains(&traced), "{traced}");
        let gateway = caller(true).with_value(FromGateway);
        assert!((0..1_000).all(|_| is_traced(&sampler, &gateway)));
    }
}
