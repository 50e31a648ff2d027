// A client of tests/interop.rs: PUTs with Java's HttpClient.
//
//     java Client.java 1.1|2 CA_FILE URL TOKEN:SIZE...
//
// Each PUT gives one line of JSON: the protocol as the library reports it, the status, the headers, the
// body, and the SHA-256 of what was sent; or the error, where there was no answer to be read. Bodies are
// made while they are sent. The PUTs follow each other on one connection, where that is kept.

import java.io.FileInputStream;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.stream.Collectors;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Client {
    static final int BLOCK = 64 * 1024;

    /** A body of so many bytes, no two blocks of which are equal. */
    static class Body extends InputStream {
        final MessageDigest hash;
        long left;
        long number;
        ByteBuffer block = ByteBuffer.allocate(0);

        Body(long size) throws Exception {
            left = size;
            hash = MessageDigest.getInstance("SHA-256");
        }

        @Override
        public int read() {
            throw new UnsupportedOperationException("the library reads arrays");
        }

        @Override
        public int read(byte[] into, int from, int most) {
            if (!block.hasRemaining()) {
                if (left == 0) {
                    return -1;
                }
                block = ByteBuffer.allocate(BLOCK).putLong(0, ++number);
                block.limit((int) Math.min(BLOCK, left));
                left -= block.limit();
                hash.update(block.duplicate());
            }
            int length = Math.min(most, block.remaining());
            block.get(into, from, length);
            return length;
        }
    }

    public static void main(String[] args) throws Exception {
        var version = args[0].equals("2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1;
        var client = HttpClient.newBuilder().version(version).sslContext(trust(args[1])).build();
        for (var step : Arrays.copyOfRange(args, 3, args.length)) {
            var parts = step.split(":");
            System.out.println(put(client, URI.create(args[2]), parts[0], Long.parseLong(parts[1])));
        }
    }

    static String put(HttpClient client, URI url, String token, long size) throws Exception {
        var body = new Body(size);
        var publisher = BodyPublishers.fromPublisher(BodyPublishers.ofInputStream(() -> body), size);
        var request = HttpRequest.newBuilder(url)
                .header("Fencing-Token", token)
                .timeout(Duration.ofSeconds(60))
                .PUT(publisher)
                .build();
        try {
            var response = client.send(request, BodyHandlers.ofString());
            var protocol = response.version() == HttpClient.Version.HTTP_2 ? "2" : "1.1";
            var headers = response.headers().map().entrySet().stream()
                    .map(entry -> quoted(entry.getKey()) + ":" + quoted(String.join(", ", entry.getValue())))
                    .collect(Collectors.joining(","));
            var sent = HexFormat.of().formatHex(body.hash.digest());
            return "{\"protocol\":" + quoted(protocol) + ",\"status\":" + response.statusCode()
                    + ",\"headers\":{" + headers + "},\"body\":" + quoted(response.body())
                    + ",\"sent\":" + quoted(sent) + "}";
        } catch (java.io.IOException error) {
            return "{\"error\":" + quoted(error.toString()) + "}";
        }
    }

    static SSLContext trust(String file) throws Exception {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var stream = new FileInputStream(file)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(stream));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\r", "\\r") + "\"";
    }
}
