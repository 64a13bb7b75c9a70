// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.spi.Deadline;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/// The instances behind a router, the client that reaches them, and the probe that looks at their
/// `/health`.
///
/// Threading: any thread. Owns the threads `kvferry-route-timer` and `kvferry-route-N` (virtual).
final class Backends implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Backends.class);

    final Pool prefill;
    final Pool decode;
    final ExecutorService threads;
    private final RouterSettings settings;
    private final HttpClient client;
    private final ScheduledExecutorService timer;

    Backends(RouterSettings settings) {
        this.settings = settings;
        // An idle connection is dropped here before the servers drop it (30 s), so that none is
        // used while it dies.
        if (System.getProperty("jdk.httpclient.keepalive.timeout") == null) {
            System.setProperty("jdk.httpclient.keepalive.timeout", "10");
        }
        threads =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofVirtual().name("kvferry-route-", 0).factory());
        client =
                HttpClient.newBuilder()
                        .version(HttpClient.Version.HTTP_1_1)
                        .connectTimeout(settings.connectTimeout())
                        .executor(threads)
                        .build();
        timer =
                Executors.newSingleThreadScheduledExecutor(
                        Thread.ofPlatform().name("kvferry-route-timer").daemon().factory());
        prefill = new Pool(prefillMembers());
        decode =
                new Pool(
                        settings.decode().stream()
                                .map(uri -> new Upstream("decode", uri, Optional.empty()))
                                .toList());
        long period = settings.probeInterval().toMillis();
        var _ = timer.scheduleWithFixedDelay(this::probeAll, period, period, TimeUnit.MILLISECONDS);
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
                                            settings.connectTimeout()))
                            : Optional.<Bootstrap>empty();
            members.add(new Upstream("prefill", settings.prefill().get(i), bootstrap));
        }
        return members;
    }

    List<Upstream> all() {
        return Stream.concat(prefill.members().stream(), decode.members().stream()).toList();
    }

    Leg leg(Upstream upstream, Deadline deadline) {
        return new Leg(upstream, client, timer, deadline);
    }

    /// A small GET with the connect timeout as its deadline.
    HttpResponse<byte[]> get(Upstream upstream, String path)
            throws LegException, InterruptedException {
        var request =
                HttpRequest.newBuilder(upstream.at(path))
                        .timeout(settings.connectTimeout())
                        .build();
        try {
            return client.send(request, BodyHandlers.ofByteArray());
        } catch (IOException e) {
            throw new LegException(upstream + ": " + e, false);
        }
    }

    private void probeAll() {
        // one at a time for each instance, so that a late answer never overrides a later one
        all().stream()
                .filter(Upstream::beginProbe)
                .forEach(upstream -> threads.execute(() -> probe(upstream)));
    }

    private void probe(Upstream upstream) {
        try {
            boolean before = upstream.isUp();
            boolean works = answers(upstream);
            upstream.seen(works);
            if (before != works) {
                LOG.info("{} is {}", upstream, works ? "up" : "down");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            upstream.endProbe();
        }
    }

    private boolean answers(Upstream upstream) throws InterruptedException {
        try {
            var request =
                    HttpRequest.newBuilder(upstream.at("/health"))
                            .timeout(settings.connectTimeout().plus(Duration.ofSeconds(1)))
                            .build();
            return client.send(request, BodyHandlers.discarding()).statusCode() == 200;
        } catch (IOException e) {
            return false;
        }
    }

    /// Stops probing and cuts every connection.
    @Override
    public void close() {
        timer.shutdownNow();
        client.shutdownNow();
        threads.shutdownNow();
    }
}
