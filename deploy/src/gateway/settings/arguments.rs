//! The command line that gives the gateways of `farthing dev` the settings given to `farthing dev` itself.

use anyhow::Result;

use super::{Billing, Limits, Proofs, Providers, Settings, TimeoutFlags, Webhooks};

impl Settings {
    /// The settings as command-line arguments of `farthing gateway`, without the provider keys.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let parts = [
            self.billing.arguments(),
            self.timeouts.arguments(),
            self.limits.arguments(),
            self.webhooks.arguments(),
            self.proofs.arguments(),
            self.providers.arguments(),
        ];
        parts.concat()
    }

    /// The provider keys as environment variables of `farthing gateway`: a command line is visible to every user of
    /// the machine.
    pub(crate) fn environment(&self) -> Result<Vec<(String, String)>> {
        self.providers.keys.variables()
    }
}

impl Billing {
    fn arguments(&self) -> Vec<String> {
        vec![
            format!("--service-charge-rate={}", self.service_charge_rate),
            format!("--default-hold={}", self.default_hold),
            format!("--hold-cap={}", self.hold_cap),
        ]
    }
}

impl TimeoutFlags {
    fn arguments(&self) -> Vec<String> {
        vec![
            format!("--head-timeout-seconds={}", self.head),
            format!("--body-timeout-seconds={}", self.body),
            format!("--stall-timeout-seconds={}", self.stall),
            format!("--connect-timeout-seconds={}", self.connect),
            format!("--answer-timeout-seconds={}", self.answer),
            format!("--silence-timeout-seconds={}", self.silence),
        ]
    }
}

impl Limits {
    fn arguments(&self) -> Vec<String> {
        let set = [
            format!("--stored-response-rate-per-merchant={}", self.stored_response_rate_per_merchant),
            format!("--decoder-mib-per-merchant={}", self.decoder_mib_per_merchant),
            format!("--queue-timeout-seconds={}", self.queue_timeout_seconds),
        ];
        let given = [
            ("max-connections", self.max_connections),
            ("max-connections-per-address", self.max_connections_per_address),
            ("max-calls", self.max_calls),
            ("max-calls-per-merchant", self.max_calls_per_merchant),
            ("max-call-rate-per-merchant", self.max_call_rate_per_merchant),
            ("max-reads-per-merchant", self.max_reads_per_merchant),
            ("postgres-connections", self.postgres_connections),
            ("read-connections", self.read_connections),
            ("delivery-connections", self.delivery_connections),
            ("decoder-mib", self.decoder_mib),
            ("max-queued-commands", self.max_queued_commands),
            ("max-queued-mib", self.max_queued_mib),
        ];
        let given = given.into_iter().filter_map(|(flag, most)| Some(format!("--{flag}={}", most?)));
        set.into_iter().chain(given).collect()
    }
}

impl Webhooks {
    fn arguments(&self) -> Vec<String> {
        let retries: Vec<_> = self.retry_ms.iter().map(ToString::to_string).collect();
        vec![
            format!("--webhook-timeout-seconds={}", self.timeout),
            format!("--webhook-retry-ms={}", retries.join(",")),
            format!("--webhook-give-up-seconds={}", self.give_up),
        ]
    }
}

impl Proofs {
    fn arguments(&self) -> Vec<String> {
        let file = self.audit_key_file.iter();
        file.map(|file| format!("--audit-key-file={}", file.display())).collect()
    }
}

impl Providers {
    fn arguments(&self) -> Vec<String> {
        let authorities =
            self.trusted_authorities.iter().map(|file| format!("--trust-ca={}", file.display()));
        let prices = self.prices.price_files.iter().map(|file| format!("--prices={}", file.display()));
        let addresses = self.allow_addresses.iter().map(|net| format!("--allow-address={net}"));
        let servers = self.dns_servers.iter().map(|server| format!("--dns-servers={server}"));
        let hosts = self.hosts.provider_hosts.iter();
        let hosts =
            hosts.map(|named| format!("--provider-host={}={}:{}", named.name, named.host, named.port));
        let headers = [format!("--forward-response-headers={}", self.forward_response_headers)];
        headers
            .into_iter()
            .chain(authorities)
            .chain(prices)
            .chain(addresses)
            .chain(servers)
            .chain(hosts)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Gateway {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn the_arguments_give_a_gateway_the_same_settings() {
        let given = [
            "gateway",
            "--allow-address=10.0.0.0/8,127.0.0.0/8",
            "--dns-servers=10.0.0.2,[fd00::2]:5353",
            "--trust-ca=a.pem",
            "--provider-host=openai=localhost:81",
            "--provider-host=xai=[::1]",
            "--prices=a.json,b.json",
            "--forward-response-headers=unaltered",
            "--service-charge-rate=0.5",
            "--default-hold=0.02",
            "--hold-cap=2",
            "--head-timeout-seconds=1",
            "--body-timeout-seconds=2",
            "--stall-timeout-seconds=3",
            "--connect-timeout-seconds=4",
            "--answer-timeout-seconds=5",
            "--silence-timeout-seconds=6",
            "--max-connections=14",
            "--max-connections-per-address=16",
            "--max-calls=15",
            "--max-calls-per-merchant=18",
            "--max-call-rate-per-merchant=46",
            "--stored-response-rate-per-merchant=47",
            "--max-reads-per-merchant=19",
            "--postgres-connections=45",
            "--read-connections=20",
            "--delivery-connections=21",
            "--decoder-mib=16",
            "--decoder-mib-per-merchant=17",
            "--max-queued-commands=11",
            "--max-queued-mib=12",
            "--queue-timeout-seconds=13",
            "--webhook-timeout-seconds=7",
            "--webhook-retry-ms=8,9",
            "--webhook-give-up-seconds=10",
            "--audit-key-file=audit.pem",
        ];
        let first = Gateway::try_parse_from(given).unwrap().settings;
        let arguments = first.arguments();
        let second =
            Gateway::try_parse_from(["gateway".to_owned()].into_iter().chain(arguments)).unwrap().settings;
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
