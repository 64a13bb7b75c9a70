// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.GpuLoop.Pace;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.RecentMap;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.stream.Stream;

/// The links of a plane, by peer, and the peers to which none is worth trying.
///
/// Threading: confined to the loop, except where a method says otherwise.
final class Links {
    private static final Logger LOG = LoggerFactory.getLogger(Links.class);

    private final Gpu gpu;
    private final Intake intake;
    private final OpenTransfers transfers;
    private final Consumer<Link> dial;
    private final Map<String, Link> links = new HashMap<>();

    /// All that are not over, also those that take no more transfers.
    private Link[] watched = {};

    /// Links whose resources have not been freed.
    private final AtomicInteger held = new AtomicInteger();

    /// Links that are over, whose resources are being freed.
    private final AtomicInteger freeing = new AtomicInteger();

    private final Set<LinkSocket> sockets = ConcurrentHashMap.newKeySet();

    private final Map<String, Deadline> avoided =
            Collections.synchronizedMap(new RecentMap<>(1024));

    /// @param dial begins to dial the peer of a link
    Links(Gpu gpu, Intake intake, OpenTransfers transfers, Consumer<Link> dial) {
        this.gpu = gpu;
        this.intake = intake;
        this.transfers = transfers;
        this.dial = dial;
    }

    /// The link with a peer; null when there is none.
    @Nullable Link find(String peer) {
        return links.get(peer);
    }

    /// Whether there are as many as there may be. Those whose resources are being freed count: that
    /// may take for ever.
    boolean full() {
        return links.size() + freeing.get() >= NcclPlane.MOST_LINKS;
    }

    Link add(String peer) {
        var link = new Link(gpu, transfers, this, peer);
        links.put(peer, link);
        watched = Arrays.copyOf(watched, watched.length + 1);
        watched[watched.length - 1] = link;
        held.incrementAndGet();
        return link;
    }

    void dial(Link link) {
        dial.accept(link);
    }

    Pace look() {
        var pace = Pace.NONE;
        for (var link : watched) { // replaced, not changed, when a link comes or goes meanwhile
            pace = pace.faster(link.look());
        }
        return pace;
    }

    void gone(Link link) {
        links.remove(link.peer(), link);
        watched = Stream.of(watched).filter(each -> each != link).toArray(Link[]::new);
    }

    /// Frees what a link had, on a thread of its own: an abort may take long.
    void free(LinkResources resources) {
        freeing.incrementAndGet();
        Runnable work =
                () -> {
                    try {
                        resources.free();
                    } finally {
                        freeing.decrementAndGet();
                        held.decrementAndGet();
                        gpu.post(() -> {}); // the loop may have waited for this
                    }
                };
        try {
            var _ = Thread.ofPlatform().name(gpu.name() + "-free").daemon(true).start(work);
        } catch (OutOfMemoryError e) { // no thread can be created
            LOG.warn("{}: a link is freed on the GPU's own thread: {}", gpu.name(), e.toString());
            work.run();
        }
    }

    /// Whether the resources of a link have not been freed. Any thread.
    boolean holdResources() {
        return held.get() > 0;
    }

    void setUpFailed(Link link, Failure why) {
        if (!intake.closed()) {
            LOG.warn("{}: no link with {}: {}", gpu.name(), link.peer(), why);
        }
        avoid(link.peer());
    }

    /// The next transfers go another way, where there is one. NCCL connects two GPUs only when the
    /// first operation runs, so that a link that was made may still be of no use.
    void avoid(String peer) {
        if (!intake.closed()) {
            avoided.put(peer, Deadline.in(gpu.limits().avoided()));
        }
    }

    /// Any thread.
    boolean avoids(String peer) {
        var until = avoided.get(peer);
        return until != null && !until.passed();
    }

    void joined(LinkSocket socket) {
        sockets.add(socket);
    }

    /// Any thread.
    void left(LinkSocket socket) {
        sockets.remove(socket);
    }

    /// How many connections have not ended, for tests. Any thread.
    int connected() {
        return sockets.size();
    }

    /// Ends the connections, so that the peers hear of it at once. Any thread.
    void disconnect() {
        sockets.forEach(LinkSocket::close);
    }

    void failAll(Failure why) {
        for (var link : List.copyOf(links.values())) {
            link.fail(why);
        }
    }

    /// Ends them with the plane.
    void leaveAll(Failure why) {
        for (var link : List.copyOf(links.values())) {
            links.remove(link.peer(), link);
            link.leave(why);
        }
    }
}
