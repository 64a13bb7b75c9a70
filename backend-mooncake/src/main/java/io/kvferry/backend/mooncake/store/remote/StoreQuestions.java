// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.Requester;

import java.time.Duration;
import java.util.Optional;

/// Asks one owner or master, and waits for the answers.
///
/// Threading: any thread.
public final class StoreQuestions implements AutoCloseable {
    private static final Duration CONNECT_LIMIT = Duration.ofSeconds(5);

    private final Requester requester;

    /// @param code 0 or a code
    /// @param body only where the code is 0
    /// @param why there is no answer, for messages; empty when there is one
    public record Answer(int code, WireReader body, String why) {
        private static final WireReader NOTHING = new WireReader(new byte[0]);

        static Answer failed(StoreCode code) {
            return failed(code, "");
        }

        static Answer failed(StoreCode code, String why) {
            return new Answer(code.number(), NOTHING, why);
        }

        /// Why it cannot be used, as a sentence.
        public String trouble() {
            return why.isEmpty() ? "it answers " + StoreCode.text(code) : why;
        }
    }

    /// @param name of its thread
    /// @param address `host:port`
    public StoreQuestions(String name, String address, Optional<FleetSecret> secret) {
        this.requester = new Requester(name, "tcp://" + address, StoreSecret.keys(secret));
    }

    /// Asks and waits, for `limit` after the connection stands, and 5 s at most for that. A thread
    /// that has been interrupted asks, too, but does not wait.
    ///
    /// @return RPC_TIMEOUT or RPC_FAIL when no answer comes, BUFFER_OVERFLOW for a question that is
    ///   too large
    public Answer ask(WireWriter question, Duration limit) {
        byte[] message = question.toByteArray();
        if (Thread.currentThread().isInterrupted()) {
            var _ = Thread.ofVirtual().name("kvferry-store-ask").start(() -> ask(message, limit));
            return Answer.failed(StoreCode.RPC_TIMEOUT, "interrupted");
        }
        return ask(message, limit);
    }

    private Answer ask(byte[] message, Duration limit) {
        try {
            Duration connect = CONNECT_LIMIT.compareTo(limit) < 0 ? CONNECT_LIMIT : limit;
            return read(requester.ask(message, connect, limit));
        } catch (KvFerryException e) {
            return lost(e);
        }
    }

    private static Answer read(byte[] message) {
        try {
            WireReader in = StoreProtocol.open(message);
            return new Answer(in.i32(), in, "");
        } catch (KvFerryException e) {
            return Answer.failed(StoreCode.RPC_FAIL, e.toString());
        }
    }

    private static Answer lost(KvFerryException e) {
        StoreCode code =
                switch (e.code()) {
                    case TIMEOUT, CANCELLED -> StoreCode.RPC_TIMEOUT;
                    case INVALID_REQUEST -> StoreCode.BUFFER_OVERFLOW;
                    default -> StoreCode.RPC_FAIL;
                };
        return Answer.failed(code, String.valueOf(e.getMessage()));
    }

    /// Ends what is being asked with RPC_FAIL.
    @Override
    public void close() {
        requester.close();
    }
}
