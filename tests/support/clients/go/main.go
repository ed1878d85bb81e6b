// A client in Go, generated from requests.proto: it hands orders to a job and prints the answers.
//
// Usage: client ADDRESS JOB TASK ID
// One unary request with JSON under ID, then a stream of three requests; a line of JSON an answer.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	wire "onyx.test/client/wire"
)

func show(answer *wire.AppendAnswer) {
	line, err := json.Marshal(map[string]any{
		"number": answer.Number, "status": answer.Status.String(), "reason": answer.Reason,
		"segments": answer.Segments, "values": answer.Values,
	})
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func request(job, task, id string, number uint64, text string) *wire.AppendRequest {
	return &wire.AppendRequest{
		Job: job, Task: task, Id: id, Number: number, TimeoutMs: 30_000,
		Segments: &wire.AppendRequest_Json{Json: []byte(text)},
	}
}

func main() {
	address, job, task, id := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	client := wire.NewRequestsClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	answer, err := client.Append(ctx, request(job, task, id, 1, `{"order": 1, "count": 2}`))
	check(err)
	show(answer)

	stream, err := client.AppendMany(ctx)
	check(err)
	for number := uint64(2); number < 5; number++ {
		text := fmt.Sprintf("{\"order\": %d, \"count\": 1}\n{\"order\": %d, \"count\": 1}\n", number, 10+number)
		check(stream.Send(request(job, task, "", number, text)))
	}
	check(stream.CloseSend())
	for received := 0; received < 3; received++ {
		answer, err := stream.Recv()
		check(err)
		show(answer)
	}
}
