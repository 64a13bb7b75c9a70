// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Objects;

/// One multimodal item of a request.
///
/// @param hash content hash including processor settings, possibly chosen by the user: never a
///   path, never trusted to be free of any character; stores scope it by model and dtype. The
///   engine has folded the tenant's salt into it, so items of two tenants never have the same
/// @param index position among the items of the request
/// @param embeddings rows of the encoder output
/// @param width elements per row
public record EcItem(
        String requestId,
        int index,
        String hash,
        String modality,
        int embeddings,
        int width,
        DType dtype) {
    public EcItem {
        Objects.requireNonNull(hash, "hash");
        if (embeddings < 1 || width < 1) {
            throw new IllegalArgumentException("item " + hash + ": " + embeddings + " x " + width);
        }
    }

    public void write(WireWriter out) {
        out.string(requestId).i32(index).string(hash).string(modality).i32(embeddings).i32(width);
        out.string(dtype.label());
    }

    public static EcItem read(WireReader in) {
        return new EcItem(
                in.string(),
                in.i32(),
                in.string(),
                in.string(),
                in.i32(),
                in.i32(),
                dtype(in.string()));
    }

    private static DType dtype(String label) {
        return DType.ofLabel(label)
                .orElseThrow(() ->
                        new KvFerryException(ErrorCode.PROTOCOL, "encoder item of dtype " + label));
    }
}
