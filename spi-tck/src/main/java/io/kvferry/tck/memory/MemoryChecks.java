// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.TransferRequest;

/// What a request must satisfy before anything of it is started.
final class MemoryChecks {
    private MemoryChecks() {}

    static void check(MemoryBackend backend, TransferRequest request) {
        if (!(request.local() instanceof MemoryPrepared near
                        && request.remote() instanceof MemoryPrepared far)
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
        var capabilities = backend.capabilities();
        if (!backend.serves(request.operation(), far.knownPeer().isPresent(), near, far)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "MEMORY has no route for "
                            + request.operation()
                            + " "
                            + near.descriptors().kind()
                            + " to "
                            + far.descriptors().kind());
        }
        if (request.notification().isPresent()) {
            require(capabilities, BackendCapabilities.Feature.NOTIFY);
            if (far.knownPeer().isEmpty()) {
                throw invalid("a loopback transfer has nobody to notify");
            }
        }
        checkShape(capabilities, near.descriptors(), far.descriptors());
        checkPeer(backend, far);
    }

    static void require(BackendCapabilities capabilities, BackendCapabilities.Feature feature) {
        if (!capabilities.has(feature)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED, "MEMORY was opened without " + feature);
        }
    }

    private static void checkShape(
            BackendCapabilities capabilities, DescriptorList near, DescriptorList far) {
        if (near.count() != far.count()) {
            throw invalid(near.count() + " local ranges, " + far.count() + " remote ones");
        }
        if (near.count() > capabilities.maxDescriptors()
                || near.bytes() > capabilities.maxBytes()) {
            throw invalid(
                    near
                            + " is more than "
                            + capabilities.maxDescriptors()
                            + " ranges or "
                            + capabilities.maxBytes()
                            + " bytes; split it");
        }
        long mask = capabilities.alignment() - 1L;
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
            if (((near.address(i) | far.address(i) | near.length(i)) & mask) != 0) {
                throw invalid("range " + i + " is not aligned to " + capabilities.alignment());
            }
        }
    }

    private static void checkPeer(MemoryBackend backend, MemoryPrepared far) {
        far.knownPeer()
                .ifPresent(peer -> {
                    try {
                        backend.requirePeer(peer.id());
                    } catch (KvFerryException e) {
                        throw e.code() == ErrorCode.NOT_FOUND
                                ? new KvFerryException(
                                        ErrorCode.PEER_LOST,
                                        "peer " + peer.id() + " was dropped",
                                        e)
                                : e;
                    }
                });
    }

    private static KvFerryException invalid(String message) {
        return new KvFerryException(ErrorCode.INVALID_REQUEST, message);
    }
}
