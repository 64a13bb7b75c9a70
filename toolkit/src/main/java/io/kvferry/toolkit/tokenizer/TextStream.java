// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;

/// Text of a growing token sequence: a character leaves as soon as all of its bytes have come,
/// never in halves.
///
/// The concatenation of all pieces equals [BpeTokenizer#decode] of all ids.
///
/// Threading: one stream belongs to one request; not safe for concurrent use.
public final class TextStream {
    private final BpeTokenizer tokenizer;
    private final CharsetDecoder decoder =
            StandardCharsets.UTF_8
                    .newDecoder()
                    .onMalformedInput(CodingErrorAction.REPLACE)
                    .onUnmappableCharacter(CodingErrorAction.REPLACE);

    /// Bytes of an unfinished character; at most 3.
    private byte[] rest = new byte[0];

    public TextStream(BpeTokenizer tokenizer) {
        this.tokenizer = tokenizer;
    }

    /// The characters that token `id` completes; often empty in the middle of a multi-byte
    /// character.
    public String push(int id) {
        return decode(tokenizer.bytesOf(id), false);
    }

    /// What is left at the end of the sequence: U+FFFD when it ends within a character, else
    /// nothing.
    public String end() {
        String last = decode(new byte[0], true);
        decoder.reset();
        rest = new byte[0];
        return last;
    }

    private String decode(byte[] more, boolean last) {
        ByteBuffer in = ByteBuffer.allocate(rest.length + more.length).put(rest).put(more).flip();
        CharBuffer out = CharBuffer.allocate(in.remaining() + 2);
        decoder.decode(in, out, last);
        if (last) {
            decoder.flush(out);
        }
        rest = new byte[in.remaining()];
        in.get(rest);
        return out.flip().toString();
    }
}
