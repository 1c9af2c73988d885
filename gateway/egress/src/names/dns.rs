//! The names of `/etc/hosts` and of DNS. `/etc/hosts` and `/etc/resolv.conf` are read once, when a gateway starts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
    ServerOrderingStrategy,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::tcp::TcpClientStream;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::net::xfer::DnsExchange;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{ConnectionProvider, Hosts, PoolContext, Resolver};

use super::{Answer, BoxFuture, FILES_PER_LOOKUP, LookupError, Source};

/// How long the answer that a name does not exist is kept, if it does not say.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// The limit on all attempts of a question. It is below the limit of a lookup, so that the addresses of one family are used
/// if the question for the other is never answered.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(8);

/// The most attempts of a question, at all servers together.
const MAX_ATTEMPTS: usize = 6;

/// The most name servers, as of the system. [`FILES_PER_LOOKUP`] leaves a connection to each and a socket over UDP to both
/// questions of a lookup.
const MAX_SERVERS: usize = 3;

/// Where the system says which name servers to ask.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// Answers from `/etc/hosts` and from name servers.
pub(super) struct Dns {
    hosts: Hosts,
    resolver: Resolver<Connections>,
    /// Names with so many dots are not searched for in other domains.
    ndots: usize,
}

impl Dns {
    /// Asks `servers`; those of `/etc/resolv.conf`, with its search domains and options, if there are none.
    pub(super) fn new(servers: &[SocketAddr]) -> Self {
        let (config, mut options) = if servers.is_empty() {
            of_this_machine()
        } else {
            (servers_of(servers), ResolverOpts::default())
        };
        let servers = config.name_servers().len().max(1);
        options.attempts = options.attempts.min(MAX_ATTEMPTS / servers - 1);
        let attempts = count((options.attempts + 1) * servers);
        let timeout = options.timeout.min(QUESTION_TIMEOUT / attempts);
        let udp_sockets = u8::try_from(FILES_PER_LOOKUP / 2 - servers).unwrap_or(1);
        let connections = Connections { runtime: TokioRuntimeProvider::default(), timeout, udp_sockets };
        // The library's limit on asking all servers once.
        options.timeout = timeout * count(servers);
        // Kept by the caller, who limits them.
        options.cache_size = 0;
        // One after the other, as the system asks them: the first may know names that the others do not. That a server was
        // silent is not remembered: callers choose names, and with slow ones they would change the order for all.
        options.num_concurrent_reqs = 1;
        options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
        let ndots = options.ndots;
        options.use_hosts_file = ResolveHosts::Never;
        let resolver = Resolver::builder_with_config(config, connections)
            .with_options(options)
            .build()
            .expect("a resolver without TLS can be made");
        let hosts = Hosts::from_system().unwrap_or_else(|error| {
            tracing::warn!(event = "egress.hosts_unreadable", %error, "this machine's hosts file cannot be read");
            Hosts::default()
        });
        Self { hosts, resolver, ndots }
    }

    /// The addresses that need no name server.
    fn without_server(&self, name: &Name) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for record_type in [RecordType::A, RecordType::AAAA] {
            if let Some(found) = self.hosts.lookup_static_host(&Query::query(name.clone(), record_type)) {
                addresses.extend(found.answers().iter().filter_map(|record| record.data.ip_addr()));
            }
        }
        if addresses.is_empty() && name.is_localhost() {
            addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        addresses
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Makes the connections to name servers. The library's own have its limit on asking all servers: the first one that does not
/// answer would leave no time to the others.
#[derive(Clone)]
struct Connections {
    runtime: TokioRuntimeProvider,
    /// The limit on an attempt at one server.
    timeout: Duration,
    /// The most sockets of an attempt over UDP. It sends the question again from each.
    udp_sockets: u8,
}

impl ConnectionProvider for Connections {
    type Conn = DnsExchange<TokioRuntimeProvider>;
    type FutureConn = BoxFuture<Result<Self::Conn, NetError>>;
    type RuntimeProvider = TokioRuntimeProvider;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        context: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        let (server, runtime) = (SocketAddr::new(ip, config.port), self.runtime.clone());
        if config.protocol == ProtocolConfig::Udp {
            let connection = UdpClientStream::builder(server, runtime)
                .with_timeout(Some(self.timeout))
                .with_max_retries(self.udp_sockets);
            return Ok(Box::pin(async move { Ok(connection.exchange()) }));
        }
        let most = Some(context.options.max_active_requests);
        Ok(Box::pin(TcpClientStream::exchange(server, config.bind_addr, self.timeout, most, runtime)))
    }

    fn runtime_provider(&self) -> &Self::RuntimeProvider {
        &self.runtime
    }
}

/// The name servers, search domains and options of `/etc/resolv.conf`. Without the file, those that the system takes then.
fn of_this_machine() -> (ResolverConfig, ResolverOpts) {
    let file = std::fs::read(RESOLV_CONF).unwrap_or_else(|error| {
        tracing::warn!(event = "egress.resolv_conf_unreadable", %error, "{RESOLV_CONF} cannot be read");
        Vec::new()
    });
    read(&file)
}

/// Reads the file as the system does: lines that are not valid are ignored.
fn read(resolv_conf: &[u8]) -> (ResolverConfig, ResolverOpts) {
    let (file, _) = resolv_conf::Config::parse_with_errors(resolv_conf);
    let servers = file.get_nameservers_or_local();
    let servers: Vec<_> = servers.iter().map(|server| SocketAddr::new(server.into(), DNS_PORT)).collect();
    let mut config = servers_of(&servers);
    for domain in file.get_last_search_or_domain() {
        // What is no domain, such as `--`, is ignored.
        if let Ok(domain) = Name::from_ascii(domain) {
            config.add_search(domain);
        }
    }
    let mut options = ResolverOpts::default();
    options.ndots = usize::try_from(file.ndots).unwrap_or(usize::MAX);
    options.timeout = Duration::from_secs(file.timeout.max(1).into());
    options.attempts = usize::try_from(file.attempts).unwrap_or(usize::MAX);
    options.edns0 = file.edns0;
    (config, options)
}

fn servers_of(servers: &[SocketAddr]) -> ResolverConfig {
    let servers = servers.iter().take(MAX_SERVERS).map(|server| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        NameServerConfig::new(server.ip(), true, connections.into())
    });
    ResolverConfig::from_parts(None, Vec::new(), servers.collect())
}

/// Whether this is another spelling of an address, such as `127.1` or `0x7f000001`, which no name is.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.strip_suffix('.').unwrap_or(name).rsplit('.').next().unwrap_or_default();
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Whether a response of this code says that there is no address.
fn is_negative(code: ResponseCode) -> bool {
    code == ResponseCode::NXDomain || code == ResponseCode::NoError
}

impl Source for Dns {
    fn look_up(&self, name: &str) -> BoxFuture<Result<Answer, LookupError>> {
        let ready = |answer| -> BoxFuture<_> { Box::pin(std::future::ready(answer)) };
        let name = match Name::from_ascii(name) {
            Ok(parsed) if parsed.num_labels() > 0 && !ends_in_a_number(name) => parsed,
            Ok(_) | Err(_) => return ready(Err(LookupError::NoAddress)),
        };
        let addresses = self.without_server(&name);
        if !addresses.is_empty() {
            return ready(Ok(Answer { addresses, ttl: Duration::ZERO }));
        }
        let mut name = name;
        if usize::from(name.num_labels()) > self.ndots {
            // A failure must not be hidden by the answer that the name does not exist in another domain.
            name.set_fqdn(true);
        }
        let resolver = self.resolver.clone();
        Box::pin(async move {
            let ask = |record_type| answer(resolver.lookup(name.clone(), record_type));
            // Both families are asked for: a host is called only if all of its addresses may be.
            match tokio::join!(ask(RecordType::A), ask(RecordType::AAAA)) {
                (Ok(four), Ok(six)) => Ok(four.and(six)),
                (Ok(found), Err(_)) | (Err(_), Ok(found)) if !found.addresses.is_empty() => {
                    // Half of the answer is not kept.
                    Ok(Answer { ttl: Duration::ZERO, ..found })
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            }
        })
    }
}

/// The answer to the question for the addresses of one family.
async fn answer(lookup: impl Future<Output = Result<Lookup, NetError>>) -> Result<Answer, LookupError> {
    match lookup.await {
        Ok(found) => {
            let ttl = found.valid_until().saturating_duration_since(Instant::now());
            let addresses = found.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
            Ok(Answer { addresses, ttl })
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) if is_negative(none.response_code) => {
            let ttl = none.negative_ttl.map_or(NEGATIVE_TTL, |ttl| Duration::from_secs(ttl.into()));
            Ok(Answer { addresses: Vec::new(), ttl })
        }
        Err(NetError::Timeout) => Err(LookupError::TimedOut),
        Err(error) => Err(LookupError::Failed(error.to_string())),
    }
}

impl Answer {
    /// The addresses of both families. One that does not exist is looked up as often as the other.
    fn and(mut self, other: Self) -> Self {
        self.ttl = match (self.addresses.is_empty(), other.addresses.is_empty()) {
            (true, false) => other.ttl,
            (false, true) => self.ttl,
            (true, true) | (false, false) => self.ttl.min(other.ttl),
        };
        self.addresses.extend(other.addresses);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No name server: one that nothing listens at.
    fn without_servers(hosts: &str) -> Dns {
        let mut dns = Dns::new(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 1))]);
        dns.hosts = Hosts::default();
        dns.hosts.read_hosts_conf(hosts.as_bytes()).unwrap();
        dns
    }

    async fn addresses(dns: &Dns, name: &str) -> Result<Vec<String>, LookupError> {
        Ok(dns.look_up(name).await?.addresses.iter().map(ToString::to_string).collect())
    }

    #[tokio::test]
    async fn names_of_the_hosts_file_and_localhost_need_no_name_server() {
        let dns = without_servers("192.0.2.1 one both # a comment\n2001:db8::2 both six.example\n");
        for (name, expected) in [
            ("one", &["192.0.2.1"][..]),
            ("ONE.", &["192.0.2.1"]),
            ("both", &["192.0.2.1", "2001:db8::2"]),
            ("six.example", &["2001:db8::2"]),
            ("localhost", &["127.0.0.1", "::1"]),
            ("localhost.", &["127.0.0.1", "::1"]),
            ("a.localhost", &["127.0.0.1", "::1"]),
        ] {
            assert_eq!(addresses(&dns, name).await.unwrap(), expected, "{name}");
        }
        let own = without_servers("192.0.2.1 localhost\n");
        assert_eq!(addresses(&own, "localhost").await.unwrap(), ["192.0.2.1"]);
    }

    #[test]
    fn the_systems_file_names_servers_domains_and_options() {
        let file = b"# a comment\nnameserver 10.0.0.2\nnameserver fd00::2\nsearch a.example b.example\n\
            options ndots:5 timeout:2 attempts:3 rotate unheard-of\n";
        let (config, options) = read(file);
        let servers: Vec<_> = config.name_servers().iter().map(|server| server.ip.to_string()).collect();
        assert_eq!(servers, ["10.0.0.2", "fd00::2"]);
        let domains: Vec<_> = config.search().iter().map(ToString::to_string).collect();
        assert_eq!(domains, ["a.example", "b.example"]);
        assert_eq!((options.ndots, options.timeout.as_secs(), options.attempts), (5, 2, 3));
        let (local, _) = read(b"search a.example\nnonsense\nnameserver nonsense\n");
        assert!(local.name_servers().iter().all(|server| server.ip.is_loopback()));
        assert!(!local.name_servers().is_empty());
        let (first, _) = read(&b"nameserver 10.0.0.2\n".repeat(MAX_SERVERS + 1));
        assert_eq!(first.name_servers().len(), MAX_SERVERS);
    }

    #[tokio::test]
    async fn spellings_of_addresses_and_what_is_no_name_are_not_looked_up() {
        let dns = without_servers("");
        let long = "x".repeat(64);
        for name in
            ["127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "1.2.3.4.", "a.1", "0x", "", &long]
        {
            assert_eq!(addresses(&dns, name).await, Err(LookupError::NoAddress), "{name}");
        }
        assert!(!ends_in_a_number("api.example1"));
        assert!(!ends_in_a_number("1.1.1.example"));
        assert!(!ends_in_a_number("x0x1"));
    }
}
