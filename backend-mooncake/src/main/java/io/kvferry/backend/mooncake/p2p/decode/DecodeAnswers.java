// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.util.HashSet;
import java.util.Set;

/// The answers of one prefiller worker to one message, turned into one verdict per request: ids
/// that were not asked for are ignored, an id in both lists has failed, an id that is not named by
/// the end has failed.
///
/// Threading: the channel's thread; verdicts are delivered on the decode loop.
final class DecodeAnswers implements SideChannel.Answers {
    /// Delivered on the decode loop: one per request, or a single [#layoutMissed]; [#leaving] and
    /// offers come before.
    interface Verdicts {
        /// @param echo the layout id that the worker repeated, 0 for none
        void ok(String request, long echo);

        /// @param lost whether the worker itself is gone; false if it refused the request
        void failed(String request, Failure failure, boolean lost);

        /// The requests are about to leave; before any other verdict.
        void leaving();

        /// The request has not reached the worker and never will.
        ///
        /// @param lost as for [#failed]
        void notSent(String request, Failure failure, boolean lost);

        void layoutMissed();

        /// The worker says where the blocks of a request are to be read.
        void offered(String request, byte[] offer);
    }

    private final DecodeService service;
    private final String address;
    private final boolean shortForm;
    private final Verdicts verdicts;
    private final Set<String> open;
    private int answersLeft;

    DecodeAnswers(
            DecodeService service,
            String address,
            boolean shortForm,
            Set<String> asked,
            Verdicts verdicts) {
        this.service = service;
        this.address = address;
        this.shortForm = shortForm;
        this.verdicts = verdicts;
        this.open = new HashSet<>(asked);
        this.answersLeft =
                2 * asked.size() + 16; // an honest peer names an id or more in each, twice at most
    }

    @Override
    public SideChannel.Reading onAnswer(byte[] message) {
        XferResponse answer;
        try {
            answer = XferDecoder.response(message);
        } catch (KvFerryException e) {
            failAll(
                    new Failure(
                            e.code(),
                            "prefiller " + address + " answered garbage: " + e.getMessage()),
                    true);
            return SideChannel.Reading.GIVE_UP;
        }
        service.onLoop(() -> service.echo(address, answer.layoutId()));
        switch (answer.status()) {
            case ERROR -> failAll(refused(answer), false);
            case LAYOUT_MISS -> {
                if (shortForm) {
                    service.onLoop(verdicts::layoutMissed);
                } else {
                    failAll(refused(answer), false);
                }
            }
            case FINISH, CONTINUE -> {
                take(answer);
                if (answer.status() == XferResponse.Status.FINISH) {
                    failAll(
                            new Failure(
                                    ErrorCode.PROTOCOL,
                                    "peer finished without reporting a transfer result"),
                            false);
                } else if (--answersLeft <= 0) {
                    failAll(
                            new Failure(
                                    ErrorCode.PROTOCOL,
                                    "prefiller " + address + " answers without end"),
                            true);
                    return SideChannel.Reading.GIVE_UP;
                }
            }
        }
        return answer.status().reading();
    }

    @Override
    public void onLost(Failure failure) {
        failAll(failure, saysThatItIsGone(failure));
    }

    @Override
    public void onLeaving() {
        service.onLoop(verdicts::leaving);
    }

    @Override
    public void onNotSent(Failure failure) {
        boolean lost = saysThatItIsGone(failure);
        for (var request : open) {
            service.onLoop(() -> verdicts.notSent(request, failure, lost));
        }
        open.clear();
    }

    /// A request that we cancelled says nothing about the prefiller.
    private static boolean saysThatItIsGone(Failure failure) {
        return failure.code() != ErrorCode.CANCELLED;
    }

    private void take(XferResponse answer) {
        var failure = refused(answer);
        for (var request : answer.errReqs()) {
            if (open.remove(request)) {
                service.onLoop(() -> verdicts.failed(request, failure, false));
            }
        }
        answer.offers()
                .forEach((request, offer) -> {
                    if (open.contains(request)) {
                        service.onLoop(() -> verdicts.offered(request, offer));
                    }
                });
        for (var request : answer.okReqs()) {
            if (open.remove(request)) {
                service.onLoop(() -> verdicts.ok(request, answer.layoutId()));
            }
        }
    }

    private Failure refused(XferResponse answer) {
        var text =
                answer.errMsg().length() > 500
                        ? answer.errMsg().substring(0, 500) + ".."
                        : answer.errMsg();
        return new Failure(ErrorCode.PEER_REFUSED, "prefiller " + address + ": " + text);
    }

    private void failAll(Failure failure, boolean lost) {
        for (var request : open) {
            service.onLoop(() -> verdicts.failed(request, failure, lost));
        }
        open.clear();
    }
}
