// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.tokenizer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.text.Normalizer;
import java.util.Arrays;
import java.util.Comparator;
import java.util.OptionalInt;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/// A byte-level BPE tokenizer: any text encodes, and any ids decode to the bytes that they stand
/// for.
///
/// Threading: immutable, safe for any number of callers.
public final class BpeTokenizer {
    /// The file that a model folder keeps its tokenizer in.
    public static final String FILE_NAME = "tokenizer.json";

    /// Stands for a byte that the vocabulary lacks; real ones lack some control characters.
    private static final int MISSING = -1;

    private static final byte[] NOTHING = new byte[0];

    private final TokenizerJson json;
    private final byte[][] bytesOf;
    private final int[] idOfByte = new int[256];
    private final Pattern added;

    private BpeTokenizer(TokenizerJson json, Path file) {
        this.json = json;
        int size = json.vocabulary().values().stream().mapToInt(i -> i).max().orElse(-1) + 1;
        bytesOf = new byte[size][];
        Arrays.fill(bytesOf, NOTHING);
        json.vocabulary()
                .forEach((text, id) ->
                        bytesOf[id] = bytes(text, json.addedTokens().containsKey(text)));
        for (int b = 0; b < 256; b++) {
            Integer id = json.vocabulary().get(String.valueOf(ByteAlphabet.charOf(b)));
            if (id == null && b > ' ' && b <= '~') {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        file + ": the vocabulary has no token for '" + (char) b + "'");
            }
            idOfByte[b] = id == null ? MISSING : id;
        }
        added =
                Pattern.compile(
                        json.addedTokens().keySet().stream()
                                .sorted(
                                        Comparator.comparingInt(String::length)
                                                .reversed()
                                                .thenComparing(Comparator.naturalOrder()))
                                .map(Pattern::quote)
                                .collect(Collectors.joining("|")));
    }

    /// Reads `tokenizer.json` in a model folder.
    ///
    /// @throws KvFerryException [ErrorCode#NOT_FOUND] without such a file, [ErrorCode#UNSUPPORTED]
    ///   for a tokenizer of another kind, [ErrorCode#CORRUPT] or [ErrorCode#INCOMPATIBLE] for one
    ///   that contradicts itself
    public static BpeTokenizer load(Path modelFolder) {
        Path file = modelFolder.resolve(FILE_NAME);
        return new BpeTokenizer(TokenizerJson.read(file), file);
    }

    /// Highest id plus one.
    public int size() {
        return bytesOf.length;
    }

    /// The id of a token by its text in the file, for example `<s>`.
    public OptionalInt idOf(String token) {
        Integer id = json.vocabulary().get(token);
        return id == null ? OptionalInt.empty() : OptionalInt.of(id);
    }

    /// Whether the id marks structure (begin, end, turn) rather than text.
    public boolean isSpecial(int id) {
        return json.special().contains(id);
    }

    /// Ids of `text`. Added tokens that stand in it verbatim become their ids.
    ///
    /// @param template whether to put the tokens around it that the file's post-processor asks for
    ///   (mostly BOS)
    public int[] encode(String text, boolean template) {
        IntStream.Builder out = IntStream.builder();
        if (template) {
            json.prefix().forEach(out::add);
        }
        if (json.addedTokens().isEmpty()) {
            encodeText(text, out);
        } else {
            int at = 0;
            for (Matcher m = added.matcher(text); m.find(); at = m.end()) {
                encodeText(text.substring(at, m.start()), out);
                idOf(m.group()).ifPresent(out::add);
            }
            encodeText(text.substring(at), out);
        }
        if (template) {
            json.suffix().forEach(out::add);
        }
        return out.build().toArray();
    }

    private void encodeText(String text, IntStream.Builder out) {
        if (text.isEmpty()) {
            return;
        }
        String normal = json.normalizer().map(f -> Normalizer.normalize(text, f)).orElse(text);
        for (String piece : json.preTokenizer().split(normal)) {
            byte[] utf8 = piece.getBytes(StandardCharsets.UTF_8);
            OptionalInt whole = json.ignoreMerges() ? idOf(spelled(utf8)) : OptionalInt.empty();
            if (whole.isPresent()) {
                out.add(whole.getAsInt());
                continue;
            }
            int[] ids = new int[utf8.length];
            for (int i = 0; i < utf8.length; i++) {
                ids[i] = idOfByte[utf8[i] & 0xff];
            }
            addMerged(json.merges().apply(ids), out);
        }
    }

    /// A missing byte becomes the unknown token, where the file names one, and is left out
    /// otherwise.
    private void addMerged(int[] ids, IntStream.Builder out) {
        int previous = 0;
        for (int id : ids) {
            if (id != MISSING) {
                out.add(id);
            } else if (!json.fuseUnknown() || previous != MISSING) {
                json.unknown().ifPresent(out::add);
            }
            previous = id;
        }
    }

    /// The bytes of one token, not to be changed by the caller; none for a special token or an id
    /// outside the vocabulary.
    byte[] bytesOf(int id) {
        return id < 0 || id >= bytesOf.length || isSpecial(id) ? NOTHING : bytesOf[id];
    }

    /// The text of `ids` without special tokens; broken UTF-8 becomes U+FFFD.
    public String decode(int... ids) {
        var stream = new TextStream(this);
        var text = new StringBuilder();
        for (int id : ids) {
            text.append(stream.push(id));
        }
        return text.append(stream.end()).toString();
    }

    private static String spelled(byte[] utf8) {
        var text = new StringBuilder(utf8.length);
        for (byte b : utf8) {
            text.append(ByteAlphabet.charOf(b & 0xff));
        }
        return text.toString();
    }

    /// Added tokens are written as they are; all others in the byte alphabet.
    private static byte[] bytes(String text, boolean verbatim) {
        byte[] out = new byte[text.length()];
        for (int i = 0; i < out.length; i++) {
            int value = ByteAlphabet.byteOf(text.charAt(i));
            if (verbatim || value < 0) {
                return text.getBytes(StandardCharsets.UTF_8);
            }
            out[i] = (byte) value;
        }
        return out;
    }
}
