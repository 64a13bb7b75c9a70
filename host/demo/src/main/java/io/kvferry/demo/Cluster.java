// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.serving.metrics.MetricsPage;
import io.kvferry.serving.route.HandOff;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.ReentrantLock;

/// One prefill instance, some decode instances, a router and, where they share a store, its owner
/// or its owners and their master, each a child process on an ephemeral loopback port.
///
/// Threading: one thread starts; the rest from any thread. [#close] ends all children, those that
/// are still starting too, and returns when they have ended.
final class Cluster implements AutoCloseable {
    private static final String OWNER = "owner";
    private static final String MASTER = "master";

    /// With a master.
    private static final int OWNERS = 2;

    private static final Duration START_LIMIT = Duration.ofMinutes(3);
    private static final Duration STOP_LIMIT = Duration.ofSeconds(10);

    private final ClusterPlan plan;
    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final ReentrantLock lock = new ReentrantLock();

    /// Every process started so far, ready or not: what [#close] ends.
    private final List<ChildJvm> children = new ArrayList<>();

    private final List<Member> members = new CopyOnWriteArrayList<>();
    private Optional<MooncakeCluster> mooncake = Optional.empty();
    private boolean closed;

    /// Where the store is, for engines; empty without one.
    private volatile String store = "";

    /// A child and where it listens.
    record Member(String name, ChildJvm process, URI url) {
        /// Whether it is a process of the store, neither an engine nor the router.
        boolean isOfStore() {
            return name.startsWith(OWNER) || name.equals(MASTER);
        }
    }

    /// A cluster without processes; [#bringUp] starts them.
    Cluster(ClusterPlan plan) {
        this.plan = plan;
    }

    /// Starts all processes and waits until they are ready; on any failure none is left.
    ///
    /// @throws KvFerryException when one does not start, with the end of its log; CLOSED when
    ///   [#close] came meanwhile
    static Cluster start(ClusterPlan plan) throws InterruptedException {
        var cluster = new Cluster(plan);
        cluster.bringUp();
        return cluster;
    }

    /// What [#start] does to a new cluster.
    void bringUp() throws InterruptedException {
        try {
            startAll();
        } catch (InterruptedException | RuntimeException e) {
            close();
            throw e;
        } catch (IOException e) {
            close();
            throw new KvFerryException(ErrorCode.IO, "cannot find a free port: " + e, e);
        }
    }

    private void startAll() throws IOException, InterruptedException {
        if (plan.hasOwner() && plan.mooncake().isPresent()) {
            store = mooncake(plan.mooncake().get()).start(Deadline.in(START_LIMIT));
        } else if (plan.hasOwner() && plan.master()) {
            String master = startStore(MASTER, plan.masterArguments());
            for (int i = 0; i < OWNERS; i++) {
                startStore(OWNER + "-" + i, plan.ownerArguments(master));
            }
            store = "master://" + master;
        } else if (plan.hasOwner()) {
            store = startStore(OWNER, plan.ownerArguments());
        }
        startEngines();
    }

    /// @return where a process of the store is asked
    private String startStore(String name, List<String> arguments) throws InterruptedException {
        var process = child(name, arguments);
        var deadline = Deadline.in(START_LIMIT);
        String address = process.awaitFact("address", deadline);
        members.add(new Member(name, process, process.awaitUrl(deadline)));
        return address;
    }

    /// Kills all processes but those of the store, and starts others in their place.
    void restartEngines() throws IOException, InterruptedException {
        for (var member : members) {
            if (!member.isOfStore()) {
                member.process.kill();
                member.process.awaitEnd(STOP_LIMIT);
                members.remove(member);
            }
        }
        startEngines();
    }

    private void startEngines() throws IOException, InterruptedException {
        boolean mooncake = plan.handOff() == HandOff.MOONCAKE;
        boolean p2p = plan.handOff() == HandOff.P2P;
        int kvPort = mooncake || p2p ? ClusterPlan.freePort() : 0;
        var deadline = Deadline.in(START_LIMIT);
        var names = new ArrayList<>(List.of("prefill"));
        for (int i = 0; i < plan.decoders(); i++) {
            names.add("decode-" + i);
        }
        var processes = new ArrayList<ChildJvm>();
        for (var name : names) {
            processes.add(child(name, plan.serveArguments(name.equals("prefill"), kvPort, store)));
        }
        for (int i = 0; i < names.size(); i++) {
            var process = processes.get(i);
            members.add(new Member(names.get(i), process, process.awaitUrl(deadline)));
        }
        var arguments =
                new ArrayList<>(
                        List.of(
                                "route",
                                "--port",
                                "0",
                                "--stop-grace",
                                "2",
                                "--hand-off",
                                plan.handOff().name().toLowerCase(Locale.ROOT)));
        for (var name : names) {
            arguments.addAll(
                    List.of(
                            name.equals("prefill") ? "--prefill" : "--decode",
                            member(name).url.toString()));
        }
        if (mooncake) {
            arguments.addAll(List.of("--bootstrap", "http://127.0.0.1:" + kvPort));
        }
        if (p2p) {
            arguments.addAll(List.of("--kv-address", "tcp://127.0.0.1:" + kvPort));
        }
        var router = child("router", arguments);
        members.add(new Member("router", router, router.awaitUrl(deadline)));
    }

    private ChildJvm child(String name, List<String> arguments) {
        lock.lock();
        try {
            if (closed) {
                throw new KvFerryException(ErrorCode.CLOSED, "the cluster is being closed");
            }
            var child = new ChildJvm(name, plan.logs().resolve(name + ".log"), arguments);
            children.add(child);
            return child;
        } finally {
            lock.unlock();
        }
    }

    private MooncakeCluster mooncake(Path programs) {
        lock.lock();
        try {
            if (closed) {
                throw new KvFerryException(ErrorCode.CLOSED, "the cluster is being closed");
            }
            var made = new MooncakeCluster(programs, plan.logs());
            mooncake = Optional.of(made);
            return made;
        } finally {
            lock.unlock();
        }
    }

    boolean hasOwner() {
        return plan.hasOwner();
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
        return MetricsPage.find(metrics(name), metric, labelPart).orElse(0.0);
    }

    @Override
    public void close() {
        List<ChildJvm> all;
        Optional<MooncakeCluster> real;
        lock.lock();
        try {
            closed = true;
            all = List.copyOf(children);
            real = mooncake;
        } finally {
            lock.unlock();
        }
        all.reversed().forEach(ChildJvm::close);
        real.ifPresent(MooncakeCluster::close);
        client.shutdownNow();
    }
}
