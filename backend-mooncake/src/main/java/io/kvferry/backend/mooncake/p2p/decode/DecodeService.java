// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.bootstrap.EngineEntry;
import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.backend.mooncake.p2p.plane.HostBackends;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.p2p.plane.RegionMemory;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.te.WriteGrant.Writers;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.LoopReport;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.recovery.OpeningParts;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;

/// The decoder's side of one rank: asks the paired prefiller workers to fill blocks, and collects
/// the results. [FetchEndings] decides when no peer writes a block any more.
///
/// While a pull is open, its prefiller may write into its blocks and nowhere else. That permission
/// ends at once with the last answer (and the last byte, see [LastBytes]), the first failure or the
/// revocation; writes that arrive later are refused. A transfer engine that cannot refuse writes
/// (Mooncake's library) holds a load that failed or was revoked until every worker that was asked
/// must have ended its writes.
///
/// Threading: calls from any thread; all state on the loop's thread.
public final class DecodeService implements AutoCloseable {
    /// How long a load waits for blocks that are written under an earlier one, see [ExposedBlocks].
    private static final Duration EXPOSED_PATIENCE = Duration.ofSeconds(5);

    private static final Duration EXPOSED_AGAIN = Duration.ofMillis(20);

    /// Longer than any request waits for its turn; then it leaves, or will not.
    private static final Duration UNTIL_IT_LEAVES = Duration.ofDays(1);

    private static final Logger LOG = LoggerFactory.getLogger(DecodeService.class);

    private final SideChannel channel;
    private final DataPlane plane;
    private final RegionMemory memory;
    private final FetchRequests requests;
    private final MooncakeSettings settings;
    private final Outbox outbox;
    private final SerialLoop loop;
    private final EngineDirectory directory;
    private final FetchReads reads;
    private final FetchEndings endings;

    public DecodeService(
            String name,
            SideChannel channel,
            DataPlane plane,
            RegionMemory memory,
            FetchRequests requests,
            MooncakeSettings settings,
            Outbox outbox) {
        this.channel = channel;
        this.plane = plane;
        this.memory = memory;
        this.requests = requests;
        this.settings = settings;
        this.outbox = outbox;
        try (var parts = new OpeningParts()) {
            this.loop = parts.add(new SerialLoop(name), SerialLoop::close);
            this.reads = new FetchReads(channel, loop, settings, outbox, this::failedAt);
            this.directory =
                    parts.add(
                            new EngineDirectory(
                                    loop, settings.connectorTimeout(), settings.secret()),
                            EngineDirectory::close);
            this.endings = new FetchEndings(channel, loop, requests, directory, settings, outbox);
            channel.onIdleEnd(address -> loop.post(() -> directory.forgetWorker(address)));
            parts.keep();
        }
    }

    private record Named(EngineDirectory.Key engine, String request) {}

    /// Pulls that travel together: a message names a request once, and a client that gives up may
    /// ask again under the same name.
    private record Group(EngineDirectory.Key engine, int turn) {}

    /// Starts the pulls of one step; those from one engine travel in one message per worker.
    public void pull(List<MooncakePlan.Pull> pulls) {
        loop.post(() -> {
            var groups = new LinkedHashMap<Group, List<Fetch>>();
            var named = new HashMap<Named, Integer>();
            for (var pull : pulls) {
                try {
                    var fetch = new Fetch(pull);
                    if (!pull.release() && !endings.add(fetch)) {
                        endings.refused(pull.load());
                        fetch = new Fetch(pull.asRelease()); // P need not keep the blocks
                    }
                    var engine = fetch.engine();
                    int turn = named.merge(new Named(engine, pull.request()), 1, Integer::sum);
                    groups.computeIfAbsent(new Group(engine, turn), _ -> new ArrayList<>())
                            .add(fetch);
                } catch (RuntimeException | Error e) { // the others are begun
                    LoopReport.ERROR.log(LOG, "a load fails that could not be begun", e);
                    notBegun(pull, Failure.of(e));
                }
            }
            groups.forEach((key, group) -> orLose(group, () -> find(key.engine(), group)));
        });
    }

    private void notBegun(MooncakePlan.Pull pull, Failure failure) {
        try {
            endings.notBegun(pull, failure);
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "a load waits until it is revoked", e);
        }
    }

    private void find(EngineDirectory.Key engine, List<Fetch> group) {
        directory.find(
                engine,
                answer ->
                        orLose(
                                group,
                                () -> {
                                    switch (answer) {
                                        case EngineDirectory.Answer.Found(var found) ->
                                                contact(found, group);
                                        case EngineDirectory.Answer.NotFound(var failure) ->
                                                group.forEach(
                                                        fetch -> endings.lose(fetch, failure));
                                    }
                                }));
    }

    /// Runs a step for some loads. If it throws, these loads end with the failure, since nothing
    /// else would end them; other loads are not affected.
    private void orLose(List<Fetch> group, Runnable step) {
        try {
            step.run();
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "loads fail that could not be begun", e);
            var failure = Failure.of(e);
            group.forEach(fetch -> lose(fetch, failure));
        }
    }

    private void lose(Fetch fetch, Failure failure) {
        try {
            if (!fetch.ended()) {
                // One worker may have been asked by now, and no other will be.
                fetch.exposeAgain(settings.abortTimeout().plus(settings.transferTimeout()));
                endings.lose(fetch, failure);
            }
        } catch (RuntimeException | Error e) { // the others must end
            LoopReport.ERROR.log(LOG, "a load waits until it is revoked", e);
        }
    }

    /// Revokes a load. It is reported once no peer writes its blocks any more.
    public void revoke(TransferId load) {
        loop.post(() -> endings.revoke(load));
    }

    private void contact(EngineEntry prefiller, List<Fetch> group) {
        var waiting = group.stream().filter(fetch -> mustWait(fetch, prefiller)).toList();
        waiting.forEach(fetch -> contactLater(prefiller, fetch));
        if (waiting.size() == group.size()) {
            return;
        }
        var live = withoutEnded(group.stream().filter(fetch -> !waiting.contains(fetch)).toList());
        List<String> addresses;
        try {
            addresses = requests.workers(prefiller);
        } catch (RuntimeException | Error e) { // Errors too: the load must be answered
            lose(live, e);
            return;
        }
        try {
            requireMeans(prefiller);
            live.stream()
                    .filter(fetch -> !fetch.pull().release())
                    .forEach(fetch -> openWindow(fetch, prefiller));
        } catch (RuntimeException | Error e) {
            lose(live, e);
            // The prefiller need not keep the blocks.
            sendAll(
                    prefiller,
                    addresses,
                    live.stream().map(fetch -> new Fetch(fetch.pull().asRelease())).toList());
            return;
        }
        sendAll(prefiller, addresses, live);
    }

    private void lose(List<Fetch> group, Throwable why) {
        group.forEach(fetch -> {
            endings.lose(fetch, Failure.of(why));
            directory.review(fetch.engine());
        });
    }

    private void sendAll(EngineEntry prefiller, List<String> addresses, List<Fetch> group) {
        group.forEach(fetch -> fetch.asked(prefiller, addresses));
        group.stream()
                .filter(fetch -> writesUnnamed(fetch, prefiller))
                .forEach(fetch ->
                        addresses.forEach(address -> fetch.exposeTo(address, UNTIL_IT_LEAVES)));
        addresses.forEach(
                address -> send(prefiller, address, group, requests.keepsLayout(address)));
    }

    /// Loads that were revoked meanwhile become releases: they still have to free the prefiller's
    /// blocks.
    private static List<Fetch> withoutEnded(List<Fetch> group) {
        return group.stream()
                .map(fetch -> fetch.ended() ? new Fetch(fetch.pull().asRelease()) : fetch)
                .toList();
    }

    /// Whether another prefiller without capabilities may still write its blocks.
    private boolean mustWait(Fetch fetch, EngineEntry prefiller) {
        return opensToAnybody(prefiller) && !fetch.ended() && endings.isExposed(fetch);
    }

    /// Whether a load from this prefiller admits writes without a capability.
    private boolean opensToAnybody(EngineEntry prefiller) {
        return plane.info().grants() && !requests.grants(prefiller);
    }

    /// Whether the prefiller may write blocks of a load after its end, because its writes name no
    /// capability or the engine cannot refuse them.
    private boolean writesUnnamed(Fetch fetch, EngineEntry prefiller) {
        return fetch.grant().isPresent()
                ? opensToAnybody(prefiller)
                : cannotRefuse() && !fetch.pull().release();
    }

    /// Whether whatever peers write to this engine's memory lands there.
    private boolean cannotRefuse() {
        return plane instanceof OwnEngine && !plane.info().grants();
    }

    private void contactLater(EngineEntry prefiller, Fetch fetch) {
        if (!fetch.waitsUntil(EXPOSED_PATIENCE).passed()) {
            var alone = List.of(fetch);
            channel.after(
                    EXPOSED_AGAIN,
                    () -> loop.post(() -> orLose(alone, () -> contact(prefiller, alone))));
            return;
        }
        endings.lose(
                fetch,
                new Failure(
                        ErrorCode.BACKPRESSURE,
                        "a prefiller without write capabilities may still write the blocks of this"
                                + " load, under one that ended early"));
        contact(prefiller, List.of(new Fetch(fetch.pull().asRelease())));
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when the prefiller cannot do what is
    ///   needed
    private void requireMeans(EngineEntry prefiller) {
        var missing =
                switch (plane) {
                    case OwnEngine _ ->
                            settings.requireCapability() && !requests.grants(prefiller)
                                    ? " knows no write capabilities, and require_capability is set"
                                    : "";
                    case HostBackends _ ->
                            prefiller.kvferry()
                                    ? ""
                                    : " is no kvferry engine and cannot be read by"
                                            + " transfer_backends; a decoder without can use it";
                };
        if (!missing.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, "prefiller " + prefiller.engineId() + missing);
        }
    }

    /// Lets the prefiller write the fetched blocks, and no peer anything else.
    private void openWindow(Fetch fetch, EngineEntry prefiller) {
        var extents = memory.extents(fetch.pull().blocks());
        switch (plane) {
            case OwnEngine own -> {
                var engine = own.engine();
                if (engine.info().grants() && !extents.isEmpty()) {
                    if (requests.grants(prefiller)) {
                        fetch.grant(engine.grant(extents, Writers.TOKEN));
                    } else {
                        var contents = memory.contents(fetch.pull().blocks());
                        fetch.grantToAny(engine.grant(extents, Writers.ANY), contents);
                    }
                }
            }
            case HostBackends backends -> fetch.reads(backends.window(extents));
        }
    }

    /// Asks one worker. What cannot be asked fails: its answer would never come.
    private void send(EngineEntry prefiller, String address, List<Fetch> group, boolean shortForm) {
        try {
            ask(prefiller, address, group, shortForm);
        } catch (RuntimeException | Error e) { // want of memory for a large request, for one
            LoopReport.WARN.log(LOG, "{} of {} is not asked", address, prefiller.engineId(), e);
            group.forEach(fetch -> failedAt(fetch, address, Failure.of(e), false));
        }
    }

    private void ask(EngineEntry prefiller, String address, List<Fetch> group, boolean shortForm) {
        var byRequest = new LinkedHashMap<String, Fetch>();
        group.forEach(fetch -> byRequest.put(fetch.pull().request(), fetch));
        var message = requests.message(prefiller, address, byRequest);
        var answers =
                new DecodeAnswers(
                        this,
                        address,
                        shortForm,
                        byRequest.keySet(),
                        new DecodeAnswers.Verdicts() {
                            @Override
                            public void ok(String request, long echo) {
                                Optional.ofNullable(byRequest.get(request))
                                        .ifPresent(
                                                fetch -> filled(fetch, prefiller, address, echo));
                            }

                            @Override
                            public void failed(String request, Failure failure, boolean lost) {
                                Optional.ofNullable(byRequest.get(request))
                                        .ifPresent(
                                                fetch -> failedAt(fetch, address, failure, lost));
                            }

                            @Override
                            public void leaving() {
                                var longest =
                                        settings.abortTimeout().plus(settings.transferTimeout());
                                group.forEach(fetch -> fetch.askedFor(address, longest));
                            }

                            @Override
                            public void notSent(String request, Failure failure, boolean lost) {
                                Optional.ofNullable(byRequest.get(request))
                                        .ifPresent(fetch -> {
                                            fetch.notHeardBy(address);
                                            failedAt(fetch, address, failure, lost);
                                            if (!lost) {
                                                release(fetch, prefiller, address);
                                            }
                                        });
                            }

                            @Override
                            public void offered(String request, byte[] offer) {
                                Optional.ofNullable(byRequest.get(request))
                                        .ifPresent(fetch -> reads.offered(fetch, address, offer));
                            }

                            @Override
                            public void layoutMissed() {
                                requests.forget(address);
                                group.forEach(fetch -> {
                                    if (fetch.ended()) {
                                        fetch.notHeardBy(address);
                                    } else {
                                        fetch.askedFor(address, UNTIL_IT_LEAVES);
                                    }
                                });
                                send(prefiller, address, withoutEnded(group), false);
                            }
                        });
        var call =
                channel.exchange(
                        address,
                        XferEncoder.request(shortForm ? message.shortForm() : message),
                        settings.connectorTimeout(),
                        settings.answerLimit(),
                        SideChannel.Turn.LONG,
                        settings.carriage(prefiller.kvferry()),
                        answers);
        // A prefiller without capabilities that has received a load must answer it; the blocks are
        // not reused before that.
        withLast(group, opensToAnybody(prefiller) ? call::withdraw : call::cancel);
    }

    /// Frees the blocks of a prefiller for a load that it was not asked for, since that had ended.
    private void release(Fetch fetch, EngineEntry prefiller, String address) {
        if (!fetch.pull().release()) {
            var release = new Fetch(fetch.pull().asRelease());
            send(prefiller, address, List.of(release), requests.keepsLayout(address));
        }
    }

    /// @param giveUp runs when all loads of a request have ended, so that it does not wait any
    ///   longer
    private static void withLast(List<Fetch> group, Runnable giveUp) {
        var open = new HashSet<>(group);
        for (var fetch : group) {
            fetch.afterwards(() -> {
                if (open.remove(fetch) && open.isEmpty()) {
                    giveUp.run();
                }
            });
        }
    }

    /// Runs work of [DecodeAnswers] on the loop; its callbacks come on the channel's thread.
    void onLoop(Runnable work) {
        loop.post(work);
    }

    /// A worker said that it knows our layout now.
    void echo(String address, long id) {
        requests.echo(address, id);
    }

    private void filled(Fetch fetch, EngineEntry prefiller, String address, long echo) {
        endings.filledBy(fetch, address);
        var refusal =
                FetchReads.tooEarly(fetch, address)
                        .or(() -> requests.layoutMismatch(prefiller, echo));
        if (refusal.isPresent() && !fetch.pull().release()) {
            failedAt(fetch, address, refusal.get(), false);
        } else {
            endings.answered(fetch, address);
        }
    }

    private void failedAt(Fetch fetch, String address, Failure failure, boolean lost) {
        if (!lost) { // writes that its engine had accepted may continue
            fetch.heardOf(address, Deadline.in(settings.transferTimeout()));
        }
        if (fetch.failure().isEmpty() && !fetch.revoked() && !fetch.pull().release()) {
            outbox.count("mooncake_num_failed_recvs");
        }
        fetch.fail(failure);
        if (lost) {
            LOG.warn("lost {} of engine {}: {}", address, fetch.engine().engineId(), failure);
            directory.forget(fetch.engine()); // it may come back at another address
            requests.forget(address);
        } else {
            directory.review(fetch.engine());
        }
        if (fetch.window().isPresent()) {
            fetch.outstanding().remove(address);
            endings.fence(fetch);
        } else {
            endings.answered(fetch, address);
        }
    }

    @Override
    public void close() {
        directory.close();
        loop.close();
        endings.close();
    }
}
