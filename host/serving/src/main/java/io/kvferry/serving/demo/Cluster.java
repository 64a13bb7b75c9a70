// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.demo;

import io.kvferry.serving.http.PrometheusText;
import io.kvferry.serving.route.HandOff;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/// One prefill instance, some decode instances and a router, each a child process on an ephemeral
/// loopback port.
///
/// Threading: one thread starts and restarts; the rest from any thread. [#close] ends all children.
final class Cluster implements AutoCloseable {
    private static final Duration START_LIMIT = Duration.ofSeconds(60);

    private final ClusterPlan plan;
    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final List<Member> members = new ArrayList<>();

    /// A child and where it listens.
    record Member(String name, ChildJvm process, URI url) {}

    private Cluster(ClusterPlan plan) {
        this.plan = plan;
    }

    /// Starts all processes and waits until they are ready; on any failure none is left.
    ///
    /// @throws KvFerryException when one does not start, with the end of its log
    static Cluster start(ClusterPlan plan) throws InterruptedException {
        var cluster = new Cluster(plan);
        try {
            cluster.startAll();
            return cluster;
        } catch (InterruptedException | RuntimeException e) {
            cluster.close();
            throw e;
        } catch (IOException e) {
            cluster.close();
            throw new KvFerryException(ErrorCode.IO, "cannot find a free port: " + e, e);
        }
    }

    private void startAll() throws IOException, InterruptedException {
        boolean mooncake = plan.handOff() == HandOff.MOONCAKE;
        int bootstrapPort = mooncake ? ClusterPlan.freePort() : 0;
        var deadline = Deadline.in(START_LIMIT);
        var names = new ArrayList<>(List.of("prefill"));
        for (int i = 0; i < plan.decoders(); i++) {
            names.add("decode-" + i);
        }
        var processes = new ArrayList<ChildJvm>();
        try {
            for (var name : names) {
                processes.add(
                        child(name, plan.serveArguments(name.equals("prefill"), bootstrapPort)));
            }
            for (int i = 0; i < names.size(); i++) {
                members.add(
                        new Member(
                                names.get(i),
                                processes.get(i),
                                processes.get(i).awaitUrl(deadline)));
            }
        } finally {
            processes.stream()
                    .filter(process ->
                            members.stream().noneMatch(member -> member.process == process))
                    .forEach(ChildJvm::kill);
        }
        var arguments =
                new ArrayList<>(
                        List.of(
                                "route",
                                "--port",
                                "0",
                                "--hand-off",
                                plan.handOff().name().toLowerCase(Locale.ROOT)));
        for (var member : members) {
            arguments.addAll(
                    List.of(
                            member.name.equals("prefill") ? "--prefill" : "--decode",
                            member.url.toString()));
        }
        if (mooncake) {
            arguments.addAll(List.of("--bootstrap", "http://127.0.0.1:" + bootstrapPort));
        }
        var router = child("router", arguments);
        try {
            members.add(new Member("router", router, router.awaitUrl(deadline)));
        } catch (InterruptedException | RuntimeException e) {
            router.kill();
            throw e;
        }
    }

    private ChildJvm child(String name, List<String> arguments) {
        return new ChildJvm(name, plan.logs().resolve(name + ".log"), arguments);
    }

    List<Member> members() {
        return List.copyOf(members);
    }

    Member member(String name) {
        return members.stream().filter(m -> m.name.equals(name)).findFirst().orElseThrow();
    }

    URI router() {
        return member("router").url;
    }

    /// The `/metrics` of a member.
    String metrics(String name) throws IOException, InterruptedException {
        var request =
                HttpRequest.newBuilder(member(name).url.resolve("/metrics"))
                        .timeout(Duration.ofSeconds(5))
                        .build();
        return client.send(request, BodyHandlers.ofString()).body();
    }

    /// A gauge or counter of a member, 0 where it has none.
    double metric(String name, String metric, String labelPart)
            throws IOException, InterruptedException {
        return PrometheusText.find(metrics(name), metric, labelPart).orElse(0.0);
    }

    @Override
    public void close() {
        for (var member : members.reversed()) {
            member.process.close();
        }
        client.shutdownNow();
    }
}
