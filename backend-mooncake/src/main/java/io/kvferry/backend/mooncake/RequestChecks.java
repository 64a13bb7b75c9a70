// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.TransferRequest;

/// What a request must satisfy before anything of it is started.
final class RequestChecks {
    private RequestChecks() {}

    /// The remote side of a sound request.
    static MooncakePrepared check(MooncakeTransferBackend backend, TransferRequest request) {
        if (!(request.local() instanceof MooncakePrepared near
                        && request.remote() instanceof MooncakePrepared far)
                || near.owner() != backend
                || far.owner() != backend) {
            throw invalid("both sides must come from prepare() of this backend");
        }
        if (near.knownPeer().isPresent()) {
            throw invalid(
                    "the local side names peer "
                            + near.peer().orElseThrow()
                            + "; are the sides swapped?");
        }
        var route =
                new Route(
                        request.operation(),
                        near.descriptors().kind(),
                        far.descriptors().kind(),
                        far.knownPeer().isPresent() ? Route.Scope.REMOTE : Route.Scope.LOOPBACK);
        if (!backend.capabilities().routes().contains(route)) {
            throw new KvFerryException(ErrorCode.UNSUPPORTED, "MOONCAKE has no " + route);
        }
        if (request.notification().isPresent() && far.knownPeer().isEmpty()) {
            throw invalid("a loopback transfer has nobody to notify");
        }
        checkShape(backend.capabilities(), near.descriptors(), far.descriptors());
        far.knownPeer().ifPresent(peer -> checkPeer(backend, peer));
        return far;
    }

    private static void checkShape(
            BackendCapabilities capabilities, DescriptorList near, DescriptorList far) {
        if (near.count() != far.count()) {
            throw invalid(near.count() + " local ranges, " + far.count() + " remote ones");
        }
        if (near.count() > capabilities.maxDescriptors()
                || near.bytes() > capabilities.maxBytes()) {
            throw invalid(
                    near + " is more than " + capabilities.maxDescriptors() + " ranges; split it");
        }
        for (int i = 0; i < near.count(); i++) {
            if (near.length(i) != far.length(i)) {
                throw invalid(
                        "range "
                                + i
                                + " has "
                                + near.length(i)
                                + " bytes here and "
                                + far.length(i)
                                + " there");
            }
        }
    }

    private static void checkPeer(MooncakeTransferBackend backend, MooncakePeer peer) {
        try {
            MooncakePeer now = backend.requirePeer(peer.id());
            if (now != peer) {
                throw new KvFerryException(
                        ErrorCode.PEER_LOST, "peer " + peer.id() + " was dropped and loaded again");
            }
        } catch (KvFerryException e) {
            throw e.code() == ErrorCode.NOT_FOUND
                    ? new KvFerryException(
                            ErrorCode.PEER_LOST, "peer " + peer.id() + " was dropped", e)
                    : e;
        }
    }

    private static KvFerryException invalid(String message) {
        return new KvFerryException(ErrorCode.INVALID_REQUEST, message);
    }
}
