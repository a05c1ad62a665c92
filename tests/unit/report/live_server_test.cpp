#include "report/live_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "message_of.h"

namespace shoal::report {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Answer content(std::string_view path) {
  if (path == "/") return {200, "text/html", "page"};
  if (path == "/broken") throw std::runtime_error("it is gone");
  return {404, "text/plain", "no " + std::string(path)};
}

int status_of(const std::string& head) { return answer_to(head, 8000, content).status; }

TEST(LiveAnswer, IsForRequestsOfThisAddressAlone) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n"), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nAccept: x\r\nhOST:   localhost:8000  \r\n"), 200);
  for (const char* host :
       {"", "Host: evil.example:8000\r\n", "Host: 127.0.0.1\r\n", "Host: 127.0.0.1:8001\r\n",
        "Host: 127.0.0.1:8000.evil.example\r\n", "Host: \r\n", "X-Host: 127.0.0.1:8000\r\n",
        "Host: 127.0.0.1:8000\r\nHost: evil.example\r\n", "Host: evil.example\r\nHost: 127.0.0.1:8000\r\n"}) {
    EXPECT_EQ(status_of(std::string("GET / HTTP/1.1\r\n") + host), 403) << host;
  }
}

TEST(LiveAnswer, KnowsOneVerbAndItsPaths) {
  const std::string host = "Host: 127.0.0.1:8000\r\n";
  EXPECT_EQ(status_of("GET /?x=1 HTTP/1.1\r\n" + host), 200);
  EXPECT_EQ(status_of("GET /../etc/passwd HTTP/1.1\r\n" + host), 404);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\n" + host), 405);
  EXPECT_EQ(status_of("HEAD / HTTP/1.1\r\n" + host), 405);
  EXPECT_EQ(status_of("GET /broken HTTP/1.1\r\n" + host), 500);
  for (const char* noise : {"", "\r\n", "GET", "GET /", "GET / SPDY/1\r\n", "\x16\x03\x01"}) {
    EXPECT_EQ(status_of(noise + host), 400) << noise;
  }
}

TEST(LiveAnswer, IsWholeWithItsLength) {
  const std::string text = http_text({200, "text/html", "page"});
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\nContent-Length: 4\r\n"));
  EXPECT_THAT(text, EndsWith("\r\n\r\npage"));
}

// What comes back for these bytes.
std::string asked(int port, const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  std::string text;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    for (const char byte : bytes) ::send(fd, &byte, 1, MSG_NOSIGNAL);
    ::shutdown(fd, SHUT_WR);
    char part[4096];
    for (ssize_t got = 0; (got = ::recv(fd, part, sizeof(part), 0)) > 0;) text.append(part, static_cast<size_t>(got));
  }
  ::close(fd);
  return text;
}

TEST(LiveServer, AnswersOneAfterTheOtherAndSurvivesNoise) {
  const std::string large(3'000'000, 'x');
  LiveServer server(0, [&](std::string_view path) {
    return path == "/large" ? Answer{200, "text/plain", large} : content(path);
  });
  std::atomic<bool> stop = false;
  std::thread thread([&] { server.serve(stop); });
  const std::string host = "Host: 127.0.0.1:" + std::to_string(server.port()) + "\r\n\r\n";
  EXPECT_THAT(asked(server.port(), "GET / HTTP/1.1\r\n" + host), EndsWith("\r\n\r\npage"));
  EXPECT_EQ(asked(server.port(), "GET / HTTP"), "") << "half a request";
  EXPECT_EQ(asked(server.port(), std::string(40000, 'a')), "") << "one without an end";
  EXPECT_THAT(asked(server.port(), "GET /large HTTP/1.1\r\n" + host), EndsWith(large));
  EXPECT_THAT(asked(server.port(), "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
  stop = true;
  thread.join();
}

TEST(LiveServer, SaysWhenAPortIsTaken) {
  const LiveServer server(0, content);
  EXPECT_THAT(testing::message_of([&] { LiveServer(server.port(), content); }),
              ::testing::MatchesRegex("\\[--port\\] 127.0.0.1:[0-9]+ cannot be listened at: .*"));
}

}  // namespace
}  // namespace shoal::report
