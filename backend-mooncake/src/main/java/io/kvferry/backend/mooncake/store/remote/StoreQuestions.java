// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// Asks one owner or master, and waits for the answers.
///
/// Threading: any thread.
public final class StoreQuestions implements AutoCloseable {
    private static final Duration CONNECT_LIMIT = Duration.ofSeconds(5);

    private final String address;
    private final SideChannel channel;

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
        this.address = "tcp://" + address;
        this.channel = new SideChannel(name, StoreSecret.keys(secret));
    }

    /// Asks and waits, for `limit` after the connection stands, and 5 s at most for that.
    ///
    /// @return RPC_TIMEOUT or RPC_FAIL when no answer comes, BUFFER_OVERFLOW for a question that is
    ///   too large
    public Answer ask(WireWriter question, Duration limit) {
        var reply = new CompletableFuture<Answer>();
        channel.exchange(
                address,
                question.toByteArray(),
                CONNECT_LIMIT.compareTo(limit) < 0 ? CONNECT_LIMIT : limit,
                limit,
                SideChannel.Turn.SHORT,
                new SideChannel.Answers() {
                    @Override
                    public SideChannel.Reading onAnswer(byte[] message) {
                        reply.complete(read(message));
                        return SideChannel.Reading.DONE;
                    }

                    @Override
                    public void onLost(Failure failure) {
                        reply.complete(lost(failure));
                    }
                });
        try {
            return reply.get(limit.plus(CONNECT_LIMIT).toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException _) {
            return Answer.failed(StoreCode.RPC_TIMEOUT, "no answer in time");
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return Answer.failed(StoreCode.RPC_TIMEOUT, "interrupted");
        } catch (ExecutionException e) {
            throw new IllegalStateException("a reply never fails", e);
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

    private static Answer lost(Failure failure) {
        StoreCode code =
                switch (failure.code()) {
                    case TIMEOUT -> StoreCode.RPC_TIMEOUT;
                    case BACKPRESSURE, INVALID_REQUEST -> StoreCode.BUFFER_OVERFLOW;
                    default -> StoreCode.RPC_FAIL;
                };
        return Answer.failed(code, failure.message());
    }

    /// Ends what is being asked with RPC_FAIL.
    @Override
    public void close() {
        channel.close();
    }
}
