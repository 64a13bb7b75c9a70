// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/// Answers the questions of a store's users.
///
/// Threading: any thread.
final class StoreServer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StoreServer.class);
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final int MOST_SESSIONS = 4096;
    private static final int SHORT_THREADS = 4;
    private static final int LONG_THREADS = 16;
    private static final int MOST_LISTED = 10_000;

    /// Of the answer to one list: it has to fit into a message.
    private static final int MOST_LISTED_BYTES = 8 << 20;

    /// Of each part of an identity.
    private static final int LONGEST_NAME = 4096;

    private final EmbeddedStore store;
    private final TransferEngine engine;
    private final OwnerCalls calls;
    private final Duration sessionLimit;
    private final StoreRequests requests =
            new StoreRequests("kvferry-owner", SHORT_THREADS, LONG_THREADS, this::answer);
    private final Map<Long, OwnerSession> sessions = new ConcurrentHashMap<>();
    private volatile String segment = "";

    StoreServer(
            EmbeddedStore store, TransferEngine engine, Duration sessionLimit, Duration putLimit) {
        this.store = store;
        this.engine = engine;
        this.calls = new OwnerCalls(engine, putLimit);
        this.sessionLimit = sessionLimit;
    }

    /// From here on sessions are opened.
    ///
    /// @param name of the segment that is mounted
    void ready(String name) {
        segment = name;
    }

    int sessions() {
        return sessions.size();
    }

    /// Where questions go.
    SideChannel.Requests requests() {
        return requests;
    }

    private StoreCode answer(
            Operation operation, long id, WireReader in, WireWriter out, Deadline deadline) {
        if (operation == Operation.HELLO) {
            return hello(in, out);
        }
        if (operation == Operation.LIST) {
            list(in, out);
            return StoreCode.OK;
        }
        if (operation.isForMaster()) {
            return StoreCode.NOT_SUPPORTED;
        }
        OwnerSession session = sessions.get(id);
        if (session == null) {
            return StoreCode.CLIENT_NOT_FOUND;
        }
        session.heard();
        switch (operation) {
            case PING -> calls.ping(session, out);
            case EXISTS -> calls.exists(session, in, out);
            case DESCRIBE -> calls.describe(session, in, out);
            case PUT_START -> calls.putStart(session, in, out);
            case PUT_END -> calls.putEnd(session, in, out);
            case GET -> calls.get(session, in, out, deadline);
            case REMOVE -> out.i64(session.client.remove(in.string(), in.bool()));
            case REMOVE_REGEX -> out.i64(session.client.removeByRegex(in.string(), in.bool()));
            case REMOVE_ALL -> out.i64(session.client.removeAll(in.bool()));
            case NO_ROOM -> out.string(session.client.noRoom());
            case DAMAGED -> out.bool(session.client.dropIfDamaged(in.string()));
            case BYE -> {
                session.leave();
                end(session);
            }
            case HELLO, LIST, REGISTER, LEAVE, OWNERS, FORGET ->
                    throw new IllegalStateException("answered above");
        }
        return StoreCode.OK;
    }

    private StoreCode hello(WireReader in, WireWriter out) {
        var identity = new StoreIdentity(in.string(), in.string(), in.string());
        if (identity.tenant().length() > LONGEST_NAME
                || identity.model().length() > LONGEST_NAME
                || identity.layout().length() > LONGEST_NAME) {
            return StoreCode.INVALID_PARAMS;
        }
        if (segment.isEmpty() || sessions.size() >= MOST_SESSIONS) {
            return StoreCode.UNAVAILABLE_IN_CURRENT_STATUS;
        }
        long id = RANDOM.nextLong() | 1;
        var session = new OwnerSession(id, store.client(identity));
        sessions.put(id, session); // first: a session whose start fails ends in time
        session.client.removals(); // from here on they are listed
        session.client.usage();
        var info = engine.info();
        out.i64(id)
                .i64(store.id())
                .string(info.segmentName())
                .string(info.incarnation())
                .string(segment)
                .i64(sessionLimit.toNanos());
        return StoreCode.OK;
    }

    private void list(WireReader in, WireWriter out) {
        String tenant = new StoreIdentity(in.string(), "", "").tenant();
        String beginning = in.string();
        int most = Math.clamp(in.i32(), 0, MOST_LISTED);
        int count = 0;
        var listed = new WireWriter();
        for (StoreIdentity identity : store.identities()) {
            if (!identity.tenant().equals(tenant)) {
                continue;
            }
            for (var object : store.list(identity).tailMap(beginning).entrySet()) {
                if (count >= most || !object.getKey().startsWith(beginning)) {
                    break;
                }
                if (listed.size() > MOST_LISTED_BYTES) {
                    most = count;
                    break;
                }
                listed.string(identity.model())
                        .string(identity.layout())
                        .string(object.getKey())
                        .i64(object.getValue().bytes())
                        .bool(object.getValue().inMemory())
                        .bool(object.getValue().onDisk());
                count++;
            }
        }
        byte[] all = listed.toByteArray();
        out.i32(count).raw(all, 0, all.length);
    }

    private void end(OwnerSession session) {
        if (session.close()) {
            sessions.remove(session.id, session);
        }
    }

    /// Gives up puts that were not ended in time, and sessions that have been silent for too long.
    /// Called periodically; the work is done on other threads.
    void sweep() {
        requests.later(() -> {
            for (OwnerSession session : sessions.values()) {
                if (session.hasLeft(sessionLimit)) {
                    LOG.info("a user of the store has gone; its puts are given up");
                    end(session);
                } else {
                    session.revokeLate();
                }
            }
        });
    }

    @Override
    public void close() {
        requests.close();
        sessions.values().forEach(OwnerSession::close);
        sessions.clear();
    }
}
