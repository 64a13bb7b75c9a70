// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.msgpack.MsgpackFields;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.CurveKeys;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.net.InetSocketAddress;
import java.net.URI;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// Instances that register themselves, as P2pNcclConnectors of kvferry and vLLM do: every 3 s each
/// sends `{"type": "P" or "D", "http_address", "zmq_address"}` over ZeroMQ. An instance gets no
/// more requests after 5 s without a registration, and gets requests again after the next one.
/// kvferry's instances unregister when they stop (type `BYE`, which is answered), and then get no
/// more requests immediately.
///
/// With a secret only holders of the secret can register. Without one, any host that reaches the
/// port can, and is sent prompts.
///
/// Threading: any thread; owns the threads of its channel.
final class Registrations implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Registrations.class);
    private static final Duration TTL = Duration.ofSeconds(5);
    private static final Duration LOOK = Duration.ofMillis(250);
    private static final int MOST = 1024;

    private static final Set<String> FIELDS = Set.of("type", "http_address", "zmq_address");

    /// As in the connector.
    private static final String KEY_PURPOSE = "p2p nccl side channel";

    private final Backends backends;
    private final Duration ttl;
    private final SideChannel channel;
    private final String address;
    private final Map<String, Entry> entries = new HashMap<>();

    private static final byte[] GOODBYE_HEARD = {'0'};

    /// @param from address of the host that registered it
    private record Entry(Upstream upstream, URI control, Deadline until, String from) {}

    /// The role of an instance, or its end.
    enum Kind {
        PREFILL("P"),
        DECODE("D"),
        GOODBYE("BYE");

        private final String type;

        Kind(String type) {
            this.type = type;
        }
    }

    /// A registration message of an instance.
    record Ping(Kind kind, URI base, URI control) {}

    Registrations(InetSocketAddress bind, Optional<FleetSecret> secret, Backends backends) {
        this(bind, secret, backends, TTL);
    }

    Registrations(
            InetSocketAddress bind, Optional<FleetSecret> secret, Backends backends, Duration ttl) {
        this.backends = backends;
        this.ttl = ttl;
        this.channel =
                new SideChannel(
                        "kvferry-route-registration",
                        secret.map(known -> CurveKeys.shared(known.keyFor(KEY_PURPOSE))));
        try {
            var host = bind.getHostString();
            address = channel.listen(host, host, bind.getPort(), bind.getPort(), this::take);
        } catch (KvFerryException e) {
            channel.close();
            throw e;
        }
        channel.every(LOOK, this::expire);
    }

    /// `tcp://host:port`
    String address() {
        return address;
    }

    private void take(SideChannel.Asker asker, byte[] message) {
        try {
            var ping = parse(message);
            if (ping.kind == Kind.GOODBYE) {
                remove(asker.host(), ping);
                asker.answer(GOODBYE_HEARD);
            } else {
                seen(asker.host(), ping);
            }
        } catch (KvFerryException e) {
            LOG.warn("{} sent no registration: {}", asker.host(), e.getMessage());
        }
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL]
    static Ping parse(byte[] message) {
        var values = new HashMap<String, String>();
        var in = new MsgpackFields(message);
        in.fields(key -> {
            boolean known = FIELDS.contains(key);
            if (known) {
                values.put(key, in.string());
            }
            return known;
        });
        var type = values.getOrDefault("type", "");
        var kind =
                Arrays.stream(Kind.values())
                        .filter(each -> each.type.equals(type))
                        .findFirst()
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.PROTOCOL, "a registration of type " + type));
        return new Ping(
                kind,
                uri("http", values.getOrDefault("http_address", "")),
                uri("tcp", values.getOrDefault("zmq_address", "")));
    }

    private static URI uri(String scheme, String address) {
        try {
            var uri = URI.create(scheme + "://" + address);
            if (uri.getHost() != null
                    && uri.getPort() > 0
                    && uri.getPort() <= 65_535
                    && uri.getAuthority().equals(address)
                    && uri.getUserInfo() == null) {
                return uri;
            }
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "not an address: " + address, e);
        }
        throw new KvFerryException(ErrorCode.PROTOCOL, "not an address: " + address);
    }

    /// An instance ends. Only the host that registered it may say so.
    private synchronized void remove(String from, Ping ping) {
        for (var kind : Kind.values()) {
            var entry = entries.get(key(kind, ping.base));
            if (entry != null && entry.from.equals(from) && entry.control.equals(ping.control)) {
                LOG.info("{} says goodbye", entry.upstream);
                entries.remove(key(kind, ping.base));
                backends.unregister(entry.upstream);
            }
        }
    }

    private static String key(Kind kind, URI base) {
        return kind.type + " " + base;
    }

    private synchronized void seen(String from, Ping ping) {
        var key = key(ping.kind, ping.base);
        var known = entries.get(key);
        if (known == null && entries.size() >= MOST) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "too many instances have registered");
        }
        Upstream upstream;
        if (known != null && known.control.equals(ping.control)) {
            upstream = known.upstream;
            if (!upstream.isUp()) {
                backends.probeSoon(upstream);
            }
        } else {
            upstream =
                    backends.register(
                            ping.kind == Kind.PREFILL,
                            ping.base,
                            ping.control,
                            Optional.ofNullable(known).map(Entry::upstream));
            LOG.info("{} registered, KV at {}", upstream, ping.control);
        }
        entries.put(key, new Entry(upstream, ping.control, Deadline.in(ttl), from));
    }

    private synchronized void expire() {
        entries.values()
                .removeIf(entry -> {
                    if (entry.until.passed()) {
                        LOG.warn("{} has not been heard of for {}", entry.upstream, ttl);
                        backends.unregister(entry.upstream);
                        return true;
                    }
                    return false;
                });
    }

    @Override
    public void close() {
        channel.close();
    }
}
