// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.Requester;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/// Sends requests to one owner or master and waits for the answers.
///
/// Threading: any thread. Requests whose answer is ignored, and those repeated after an interrupt,
/// run on virtual threads.
public final class StoreQuestions implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StoreQuestions.class);
    private static final Duration CONNECT_LIMIT = Duration.ofSeconds(5);

    /// Questions on threads of their own, and how long [#close] waits for them.
    static final int MOST_LATE = 256;

    private static final long MOST_LATE_BYTES = 16L << 20;
    private static final int PART_OF_HEAP = 64;
    private static final Duration LATE_LIMIT = Duration.ofSeconds(2);

    private final String name;
    private final Requester requester;
    private final Semaphore late = new Semaphore(MOST_LATE);
    private final ByteBudget lateRoom = ByteBudget.ofHeap(MOST_LATE_BYTES, PART_OF_HEAP);

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

    /// @param name of its threads
    /// @param address `host:port`
    public StoreQuestions(String name, String address, Optional<FleetSecret> secret) {
        this.name = name;
        this.requester = new Requester(name, "tcp://" + address, StoreSecret.keys(secret));
    }

    /// Asks and waits, for `limit` at most, of which 5 s for a connection. An interrupt ends both.
    ///
    /// @return RPC_TIMEOUT or RPC_FAIL when no answer comes, BUFFER_OVERFLOW for a question that is
    ///   too large
    public Answer ask(WireWriter question, Duration limit) {
        try {
            return ask(question.toByteArray(), limit);
        } catch (KvFerryException e) {
            return lost(e);
        }
    }

    /// As [#ask], but an interrupt ends only the wait. The request is then sent again on another
    /// thread, so the peer may receive it twice.
    public Answer askSurely(WireWriter question, Duration limit) {
        byte[] message = question.toByteArray();
        try {
            return ask(message, limit);
        } catch (KvFerryException e) {
            return e.code() == ErrorCode.CANCELLED && !askLate(message, limit)
                    ? Answer.failed(StoreCode.RPC_TIMEOUT, "interrupted, with too many others")
                    : lost(e);
        }
    }

    /// Sends a request on another thread and ignores the answer. The request is dropped when too
    /// many of these are pending.
    public void tell(WireWriter question, Duration limit) {
        if (!askLate(question.toByteArray(), limit)) {
            LOG.debug("a request is dropped, too many are pending");
        }
    }

    private Answer ask(byte[] message, Duration limit) {
        return read(requester.ask(message, CONNECT_LIMIT, limit));
    }

    /// @return false when too much is being asked like this
    private boolean askLate(byte[] message, Duration limit) {
        if (!late.tryAcquire()) {
            return false;
        }
        if (!lateRoom.take(message.length)) {
            late.release();
            return false;
        }
        boolean begun = false;
        try {
            var _ =
                    Thread.ofVirtual()
                            .name(name + "-late")
                            .start(() -> {
                                try {
                                    var _ = ask(message, limit);
                                } catch (KvFerryException e) {
                                    LOG.debug("a late question is lost: {}", e.toString());
                                } finally {
                                    asked(message);
                                }
                            });
            begun = true;
            return true;
        } finally {
            if (!begun) {
                asked(message);
            }
        }
    }

    private void asked(byte[] late) {
        lateRoom.give(late.length);
        this.late.release();
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

    /// Ends what is being asked with RPC_FAIL, but waits 2 s before for the questions of
    /// interrupted threads.
    @Override
    public void close() {
        awaitLate();
        requester.close();
    }

    /// Waits for the requests in the background, and takes all permits so that no more are sent.
    /// Not interruptible: an interrupt is what put requests into the background.
    private void awaitLate() {
        Uninterrupted.await(
                nanos -> late.tryAcquire(MOST_LATE, nanos, TimeUnit.NANOSECONDS), LATE_LIMIT);
    }
}
