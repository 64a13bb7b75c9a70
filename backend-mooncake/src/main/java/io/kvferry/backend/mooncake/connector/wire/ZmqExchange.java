// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector.wire;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import java.time.Duration;
import java.util.Optional;

/// One request and its answers, on a [DealerConnection] that carries nothing else meanwhile.
///
/// Threading: the [SideChannel]'s thread, after construction.
final class ZmqExchange {
    private final String address;
    private final byte[] request;
    private final Duration answerLimit;
    private final SideChannel.Answers answers;
    private Deadline deadline;
    private boolean limitStarted;

    ZmqExchange(
            String address,
            byte[] request,
            Deadline connectBy,
            Duration answerLimit,
            SideChannel.Answers answers) {
        this.address = address;
        this.request = request;
        this.deadline = connectBy;
        this.answerLimit = answerLimit;
        this.answers = answers;
    }

    String address() {
        return address;
    }

    byte[] request() {
        return request;
    }

    SideChannel.Answers answers() {
        return answers;
    }

    Deadline deadline() {
        return deadline;
    }

    /// An answer came: the time to the next one begins.
    void answered() {
        deadline = Deadline.in(answerLimit);
    }

    /// Why no more answers will come, if so.
    ///
    /// @param over what the connection said of its end before the answers were read
    Optional<Failure> fate(DealerConnection connection, boolean over) {
        if (over) {
            var what =
                    connection.greeted() ? " closed the connection" : " does not take connections";
            return Optional.of(new Failure(ErrorCode.PEER_LOST, "prefiller at " + address + what));
        }
        if (connection.greeted() && !limitStarted) {
            limitStarted = true;
            deadline = Deadline.in(answerLimit);
        }
        if (!deadline.passed()) {
            return Optional.empty();
        }
        var prefiller = "prefiller at " + address;
        return Optional.of(
                limitStarted
                        ? new Failure(
                                ErrorCode.TIMEOUT,
                                prefiller + ": no answer within " + answerLimit.toMillis() + " ms")
                        : new Failure(
                                ErrorCode.TIMEOUT,
                                prefiller
                                        + ": no answer within the time to connect, "
                                        + connection.stalls()
                                        + " handshakes given up"));
    }
}
