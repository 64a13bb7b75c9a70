// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.events.KvEventSubscriber;
import io.kvferry.serving.http.HttpCall;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TransferTrust;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.net.HttpExchanges;
import io.kvferry.toolkit.net.LastingHttpClient;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Stream;

/// The instances behind a router, the HTTP client for them, and the probe that polls their
/// `/health`.
///
/// Threading: any thread. Owns the threads `kvferry-route-timer` and `kvferry-route-N` (virtual).
final class Backends implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Backends.class);

    /// The path at which kvferry's server takes releases.
    private static final String RELEASE_PATH = "/kvferry/release_hold";

    private static final int RELEASE_TRIES = 3;
    private static final Duration PROBE_SLACK = Duration.ofSeconds(1);

    final Pool prefill;
    final Pool decode;
    final Tokenization tokenization;
    final ExecutorService threads;
    private final List<KvEventSubscriber> subscribers;
    final LongAdder releases = new LongAdder();
    private final RouterSettings settings;
    private final LastingHttpClient client;
    private final ScheduledExecutorService timer;

    Backends(RouterSettings settings) {
        this.settings = settings;
        // Idle connections are closed here before the servers close them (30 s), so that no request
        // goes out on a connection that is just being closed.
        if (System.getProperty("jdk.httpclient.keepalive.timeout") == null) {
            System.setProperty("jdk.httpclient.keepalive.timeout", "10");
        }
        threads =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofVirtual().name("kvferry-route-", 0).factory());
        client = new LastingHttpClient(this::newClient);
        timer =
                Executors.newSingleThreadScheduledExecutor(
                        Thread.ofPlatform().name("kvferry-route-timer").daemon().factory());
        prefill = new Pool(prefillMembers(), settings.policy());
        decode =
                new Pool(
                        settings.decode().stream()
                                .map(uri -> new Upstream("decode", uri, Optional.empty()))
                                .toList(),
                        settings.policy());
        tokenization = new Tokenization(client, settings, this::all);
        subscribers = follow();
        long period = settings.probeInterval().toMillis();
        var _ =
                timer.scheduleWithFixedDelay(
                        LastingLoop.repeated(this::probeAll),
                        period,
                        period,
                        TimeUnit.MILLISECONDS);
    }

    private HttpClient newClient() {
        var builder =
                HttpClient.newBuilder()
                        .version(HttpClient.Version.HTTP_1_1)
                        .connectTimeout(settings.connectTimeout())
                        .executor(this::step);
        settings.tls().ifPresent(builder::sslContext);
        return builder.build();
    }

    /// Runs a step of the HTTP client. Steps that follow an event come from the client's own
    /// thread, a platform thread, and stay there: they do not block, and a thread for each of them
    /// costs some ten wake-ups per leg. The first step of a request comes from its sender. It looks
    /// up the name of the host, which may take longer than the request may; the sender has a limit
    /// to keep and may hold a lock, so that step gets a thread of its own.
    private void step(Runnable step) {
        if (Thread.currentThread().isVirtual()) {
            threads.execute(step);
        } else {
            step.run();
        }
    }

    /// Whether the KV events of an instance are followed.
    boolean isFollowed(Upstream upstream) {
        return settings.kvEvents().containsKey(upstream.base);
    }

    private List<KvEventSubscriber> follow() {
        var all = new ArrayList<KvEventSubscriber>();
        for (var upstream : all()) {
            var source = settings.kvEvents().get(upstream.base);
            if (source != null) {
                all.add(new KvEventSubscriber(source, upstream.cached));
            }
        }
        return all;
    }

    private List<Upstream> prefillMembers() {
        var members = new ArrayList<Upstream>();
        for (int i = 0; i < settings.prefill().size(); i++) {
            var bootstrap =
                    i < settings.bootstrap().size()
                            ? Optional.of(
                                    new Bootstrap(
                                            client,
                                            settings.bootstrap().get(i),
                                            settings.connectTimeout(),
                                            settings.secret()))
                            : Optional.<Bootstrap>empty();
            members.add(new Upstream("prefill", settings.prefill().get(i), bootstrap));
        }
        return members;
    }

    /// An instance registered itself, or did so again with another control port.
    ///
    /// @param before what it was until now
    Upstream register(boolean prefills, URI base, URI control, Optional<Upstream> before) {
        var upstream =
                prefills
                        ? new Upstream(
                                "prefill",
                                base,
                                Optional.of(
                                        new Bootstrap(
                                                client,
                                                control,
                                                settings.connectTimeout(),
                                                settings.secret())))
                        : new Upstream("decode", base, Optional.empty());
        upstream.awaitHealth();
        (prefills ? prefill : decode).replace(before.orElse(null), upstream);
        probeSoon(upstream);
        return upstream;
    }

    /// An instance has not been heard of for too long.
    void unregister(Upstream upstream) {
        prefill.remove(upstream);
        decode.remove(upstream);
    }

    List<Upstream> all() {
        return Stream.concat(prefill.members().stream(), decode.members().stream()).toList();
    }

    Leg leg(Upstream upstream, Deadline deadline) {
        return new Leg(upstream, client.now(), timer, deadline, settings.secret());
    }

    /// Asks a prefill instance, in the background, to release what it holds under `token`. Retries
    /// a few times. An instance that does not answer, or does not know the call (vLLM), frees the
    /// blocks at its own time limit.
    void release(Upstream upstream, String token, String requestId) {
        threads.execute(() -> {
            try {
                for (int i = 0; i < RELEASE_TRIES; i++) {
                    if (sendRelease(upstream, token, requestId)) {
                        releases.increment();
                        return;
                    }
                    TimeUnit.SECONDS.sleep(1L << i);
                }
                LOG.warn("{}: {} did not release what it holds", requestId, upstream);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
    }

    /// Signs a POST where there is a secret; its headers are all set before.
    static void sign(
            Optional<FleetSecret> secret, HttpRequest.Builder request, URI uri, byte[] body) {
        if (secret.isPresent()) {
            var headers = request.copy().build().headers();
            request.header(
                    HttpSignature.HEADER,
                    TransferTrust.sign(secret.get(), uri.getRawPath(), body, headers::firstValue));
        }
    }

    private boolean sendRelease(Upstream upstream, String token, String requestId)
            throws InterruptedException {
        var uri = upstream.at(RELEASE_PATH);
        var body = Json.text(Json.object().put("hold", token)).getBytes(StandardCharsets.UTF_8);
        var request =
                HttpRequest.newBuilder(uri)
                        .timeout(settings.connectTimeout())
                        .header("Content-Type", "application/json")
                        .header("X-Request-Id", requestId)
                        .POST(HttpRequest.BodyPublishers.ofByteArray(body));
        sign(settings.secret(), request, uri, body);
        try {
            int status =
                    HttpExchanges.send(
                                    client.now(),
                                    request.build(),
                                    BodyHandlers.discarding(),
                                    settings.connectTimeout())
                            .statusCode();
            if (status == 403) {
                LOG.warn("{} does not trust this router to release what it holds", upstream);
            }
            return status < 500;
        } catch (IOException e) {
            LOG.debug("{}: cannot release at {}: {}", requestId, upstream, e.toString());
            return false;
        }
    }

    /// Sends a small call on, with its body where it is a POST. A GET has the connect timeout as
    /// its deadline; the texts of a POST may take an instance longer.
    HttpResponse<byte[]> forward(Upstream upstream, String path, HttpCall call)
            throws IOException, LegException, InterruptedException {
        boolean posts = call.method().equals("POST");
        var limit =
                posts
                        ? settings.connectTimeout().plus(settings.firstByteTimeout())
                        : settings.connectTimeout();
        var request = HttpRequest.newBuilder(upstream.at(path)).timeout(limit);
        call.header("Authorization").ifPresent(value -> request.header("Authorization", value));
        if (posts) {
            request.header("Content-Type", "application/json")
                    .POST(HttpRequest.BodyPublishers.ofByteArray(call.body()));
        }
        try {
            return HttpExchanges.send(
                    client.now(),
                    request.build(),
                    BodyHandlers.limiting(BodyHandlers.ofByteArray(), settings.maxResponseBytes()),
                    limit);
        } catch (HttpTimeoutException e) {
            throw new LegException(LegException.Cause.SILENT, upstream + ": " + e);
        } catch (IOException e) {
            throw new LegException(LegException.Cause.UNREACHED, upstream + ": " + e);
        }
    }

    private void probeAll() {
        for (var upstream : all()) {
            var _ = probeSoon(upstream);
        }
    }

    /// Polls the `/health` of an instance in the background, unless a poll is running: a late
    /// answer then cannot override a newer one, and many requests that find no instance share one
    /// poll.
    ///
    /// @return completes when the instance has answered or timed out
    CompletableFuture<Void> probeSoon(Upstream upstream) {
        var mine = new CompletableFuture<Void>();
        var running = upstream.probe.compareAndExchange(null, mine);
        if (running != null) {
            return running;
        }
        try {
            threads.execute(() -> {
                try {
                    probe(upstream);
                } finally {
                    upstream.probe.set(null);
                    mine.complete(null);
                }
            });
        } catch (RejectedExecutionException | OutOfMemoryError e) { // closed; or the next look asks
            upstream.probe.set(null);
            mine.complete(null);
        }
        return mine;
    }

    /// Polls `/health` of every instance of a pool, and returns when all have answered or the
    /// connect timeout is over.
    void probeNow(Pool pool) throws InterruptedException {
        var waiting = pool.members().stream().map(this::probeSoon).toList();
        var limit = Deadline.in(settings.connectTimeout().plus(PROBE_SLACK));
        for (var probe : waiting) {
            try {
                probe.get(Math.max(0, limit.remainingNanos()), TimeUnit.NANOSECONDS);
            } catch (ExecutionException | TimeoutException e) {
                LOG.debug("probing {}: {}", pool, e.toString());
            }
        }
    }

    private void probe(Upstream upstream) {
        long since = System.nanoTime();
        try {
            var limit = settings.connectTimeout().plus(PROBE_SLACK);
            var request = HttpRequest.newBuilder(upstream.at("/health")).timeout(limit).build();
            int status =
                    HttpExchanges.send(client.now(), request, BodyHandlers.discarding(), limit)
                            .statusCode();
            boolean only = decode.isDownButFor(upstream);
            upstream.probed(status == 200, "/health answered " + status, only);
        } catch (HttpTimeoutException e) {
            upstream.probeTimedOut("/health stayed silent", since);
        } catch (IOException e) {
            upstream.probed(false, "/health: " + e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /// Stops probing and cuts every connection.
    @Override
    public void close() {
        subscribers.forEach(KvEventSubscriber::close);
        timer.shutdownNow();
        client.close();
        threads.shutdownNow();
    }
}
